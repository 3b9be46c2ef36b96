from pathlib import Path
src=open("gen.py").read()
exec(src.split("for key,(tid,fam)")[0])
ns={}; exec("MAIN = "+src.split("MAIN = ",1)[1].split("for f in sorted")[0], ns); MAIN=ns["MAIN"]
base=(load_task(T["fft"][0]).directory/"tuned.cu").read_text()
head=base[:base.index("// --- a warp a signal")]
K=r'''
constexpr int WARPS=%(W)d, BLOCKS=%(B)d, STAGES=%(S)d;
__device__ inline unsigned sa(const void* p){return (unsigned)__cvta_generic_to_shared(p);}
__device__ inline void load(float2* dst, const float2* src, uint64_t* bar){
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%0], %%1;"::"r"(sa(bar)),"r"(8192):"memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%%0], [%%1], %%2, [%%3];"::"r"(sa(dst)),"l"(src),"r"(8192),"r"(sa(bar)):"memory");
}
__device__ inline void await(uint64_t* bar, unsigned parity){
  asm volatile("{\n.reg .pred p;\nW: mbarrier.try_wait.parity.shared::cta.b64 p, [%%0], %%1;\n@p bra D;\nbra W;\nD:\n}"::"r"(sa(bar)),"r"(parity):"memory");
}
__global__ void __launch_bounds__(WARPS*32, BLOCKS) transform(const float2* __restrict__ x, float2* __restrict__ y, int64_t batch){
  extern __shared__ __align__(128) float2 buffer[];
  __shared__ uint64_t full[WARPS][STAGES];
  int lane=threadIdx.x%%32, warp=threadIdx.x/32;
  float2* mine=buffer+warp*STAGES*1024; uint64_t* bars=full[warp];
  int64_t step=(int64_t)gridDim.x*WARPS, signal=(int64_t)warp*gridDim.x+blockIdx.x;
  if(lane==0){ for(int s=0;s<STAGES;s++) asm volatile("mbarrier.init.shared::cta.b64 [%%0], 1;"::"r"(sa(bars+s)):"memory"); asm volatile("fence.mbarrier_init.release.cluster;":::"memory");
    for(int s=0;s<STAGES;s++) if(signal+s*step<batch) load(mine+s*1024,x+(signal+s*step)*LENGTH,bars+s); }
  __syncwarp();
  for(int it=0; signal<batch; signal+=step,++it){
    int s=it%%STAGES; float2* here=mine+s*1024; await(bars+s,(it/STAGES)&1);
    float2 v[32];
#pragma unroll
    for(int a=0;a<32;++a) v[a]=here[32*a+lane];
    transform32(v);
    __syncwarp();
#pragma unroll
    for(int c=0;c<32;++c){ float2 value=v[reversed(c)]; if(c>0){ float2 w=twiddles.at[32*c+lane]; value=times(value,w.x,w.y);} here[c*32+(lane^c)]=value; }
    __syncwarp();
#pragma unroll
    for(int b=0;b<32;++b) v[b]=here[lane*32+(b^lane)];
    asm volatile("fence.proxy.async.shared::cta;":::"memory");
    __syncwarp();
    if(lane==0 && signal+STAGES*step<batch) load(here,x+(signal+STAGES*step)*LENGTH,bars+s);
    transform32(v);
    float2* to=y+signal*LENGTH;
#pragma unroll
    for(int d=0;d<32;++d) %(ST)s
  }
}
extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream){
  int bytes=WARPS*STAGES*8192; cudaFuncSetAttribute(transform,cudaFuncAttributeMaxDynamicSharedMemorySize,bytes);
  transform<<<132*BLOCKS,WARPS*32,bytes,stream>>>((const float2*)x,(float2*)y,batch);
}
'''
out=Path("kit")
for W,B,S in ((12,1,2),(4,3,2),(6,2,2),(8,1,3),(4,2,3),(7,2,2),(5,2,2),(4,4,1),(8,2,1)):
  for st in ("d","cs"):
    ST={"d":"to[32*d+lane]=v[reversed(d)];","cs":"__stcs(to+32*d+lane,v[reversed(d)]);"}[st]
    name=f"fft__tma_w{W}_b{B}_s{S}_{st}"
    (out/f"{name}.cu").write_text(NA+head+K%dict(W=W,B=B,S=S,ST=ST)+f'\n#include "main.h"\n#define NAME "{name}"\n'+MAIN["fft"]+"\n")
