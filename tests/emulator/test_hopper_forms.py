"""Which forms of Hopper's asynchronous instructions are known, and which are refused before anything runs."""

from __future__ import annotations

import pytest

from cudahercules.emulator.check import unsupported

HEAD = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry k() {
.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .f32 %f<8>;
"""
SIGNAL = "mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(
    "line",
    [
        f"cp.async.bulk.shared::cta.global.{SIGNAL} [%r0], [%rd0], 16, [%r1];",
        f"cp.async.bulk.shared::cluster.global.{SIGNAL}.L2::cache_hint "
        "[%r0+32], [%rd0+16], %r2, [%r1], %rd1;",
        f"cp.async.bulk.tensor.3d.shared::cta.global.tile.{SIGNAL} [%r0], [%rd0, {{%r1, 4, %r3}}], [%r4];",
        "cp.async.bulk.prefetch.tensor.5d.L2.global.tile.L2::cache_hint "
        "[%rd0, {%r0, %r1, %r2, %r3, %r4}], %rd1;",
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.min.bulk_group [%rd0, {%r1}], [%r0];",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.max.bf16 [%rd0], [%r0], 32;",
        "cp.async.bulk.wait_group.read 3;",
        "mbarrier.try_wait.acquire.cluster.shared::cta.b64 %p0, [%r0], %rd0, %r1;",
        "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%r0], %r1;",
        "mbarrier.arrive_drop.release.cluster.shared::cluster.b64 _, [%r0];",
        "mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r0], 16;",
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%r0], {%f0, %f1}, [%r1];",
        "barrier.cluster.arrive;",
        "barrier.cluster.wait.acquire;",
        "atom.relaxed.cluster.shared::cluster.add.u32 %r0, [%r1], 1;",
        "mapa.shared::cluster.u32 %r0, %r1, 3;",
        "fence.proxy.tensormap::generic.acquire.gpu [%rd0], 128;",
        "fence.proxy.tensormap::generic.release.cta;",
        "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;",
        "tensormap.replace.tile.global_address.global.b1024.b64 [%rd0], %rd1;",
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
        "[%rd0], [%r0], 128;",
        "tensormap.replace.tile.rank.b1024.b32 [%rd0], %r1;",
        "tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r0], 4, %r1;",
        "prefetch.param.tensormap [%rd0];",
        "griddepcontrol.wait;",
        "setmaxnreg.dec.sync.aligned.u32 40;",
    ],
)
def test_known_forms(line):
    assert unsupported(f"{HEAD}{line}\nret;\n}}\n") == ()


@pytest.mark.parametrize(
    "line",
    [
        "tensormap.replace.tile.global_address.global.b1024.b32 [%rd0], %r1;",
        "tensormap.replace.tile.global_dim.global.b1024.b32 [%rd0], %r1;",
        "tensormap.replace.tile.global_dim.local.b1024.b32 [%rd0], 1, %r1;",
        "tensormap.replace.im2col.global_dim.global.b1024.b32 [%rd0], 1, %r1;",
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
        "[%rd0], [%r0], 64;",
        f"cp.async.bulk.tensor.4d.shared::cluster.global.im2col.{SIGNAL} "
        "[%r0], [%rd0, {%r1, %r2, %r3, %r4}], [%r5], {%h0, %h1};",
        f"cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.{SIGNAL} "
        "[%r0], [%rd0, {%r1, %r2, %r3, %r4, %r5}], [%r6];",
        f"cp.async.bulk.tensor.2d.shared::cluster.global.{SIGNAL} [%r0], [%rd0, {{%r1}}], [%r4];",
        f"cp.async.bulk.tensor.6d.shared::cluster.global.{SIGNAL} [%r0], [%rd0, {{%r1}}], [%r4];",
        f"cp.async.bulk.shared::cluster.global.{SIGNAL}.multicast::cluster [%r0], [%rd0], 16, [%r1];",
        f"cp.async.bulk.shared::cluster.shared::cta.{SIGNAL}.multicast::cluster "
        "[%r0], [%r3], 16, [%r1], %h0;",
        "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd0], [%r0], 16, %h0;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%rd0], [%r0], 32;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.and.f32 [%rd0], [%r0], 32;",
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.mul.bulk_group [%rd0, {%r1}], [%r0];",
        "mbarrier.arrive.shared::cluster.b64 %rd0, [%r0];",
        "mbarrier.try_wait.shared::cluster.b64 %p0, [%r0], %rd0;",
        "mbarrier.init.shared::cluster.b64 [%r0], 1;",
        "mbarrier.arrive.noComplete.shared::cta.b64 %rd0, [%r0];",
        "mbarrier.arrive.sometimes.shared::cta.b64 %rd0, [%r0];",
        "st.async.shared::cluster.v2.f32 [%r0], {%f0, %f1}, [%r1];",
        f"st.async.weak.shared::cluster.{SIGNAL}.v4.b64 [%r0], {{%rd0, %rd1, %rd2, %rd3}}, [%r1];",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.f32 [%r0], %f1, [%r1];",
        "barrier.cluster.arrive.acquire;",
        "barrier.cluster.sync;",
        "mapa.shared::cta.u32 %r0, %r1, 3;",
        "fence.proxy.tensormap::generic.acquire.gpu;",
        "fence.mbarrier_init.acquire.cluster;",
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r0], [%r1];",
        "ld.global.u32 %r0, [%rd0, {%r1}];",
    ],
)
def test_refused_forms(line):
    found = unsupported(f"{HEAD}{line}\nret;\n}}\n")
    assert len(found) == 1 and found[0].kernel == "k"
    assert line.split(" ")[0].rstrip(";") in found[0].instruction
