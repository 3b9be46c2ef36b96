from pathlib import Path
exec(open("gen.py").read().split("for key,(tid,fam)")[0])
import re
src=open("gen.py").read()
ns={}
exec("MAIN = "+src.split("MAIN = ",1)[1].split("for f in sorted")[0], ns); MAIN=ns["MAIN"]
base = (load_task(T["ln"][0]).directory/"tuned.cu").read_text()
head = base[:base.index("__global__ void __launch_bounds__")].replace("__ldcs","ld_plain")
K = r'''
constexpr int STAGES = %(S)d, BLOCKS = %(B)d;
__device__ inline unsigned sa(const void* p){return (unsigned)__cvta_generic_to_shared(p);}
__device__ inline void load(uint4* dst, const x_t* src, uint64_t* bar){
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%0], %%1;"::"r"(sa(bar)),"r"(ROW_BYTES):"memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes%(H)s [%%0], [%%1], %%2, [%%3]%(HA)s;"::"r"(sa(dst)),"l"(src),"r"(ROW_BYTES),"r"(sa(bar))%(HV)s:"memory");
}
__device__ inline void await(uint64_t* bar, unsigned parity){
  asm volatile("{\n.reg .pred p;\nW: mbarrier.try_wait.parity.shared::cta.b64 p, [%%0], %%1;\n@p bra D;\nbra W;\nD:\n}"::"r"(sa(bar)),"r"(parity):"memory");
}
__global__ void __launch_bounds__(THREADS, BLOCKS) normalise(const x_t* __restrict__ x, const weight_t* __restrict__ weight, const bias_t* __restrict__ bias, z_t* __restrict__ z, float* __restrict__ mean_out, float* __restrict__ rstd_out, int rows, float eps){
  extern __shared__ __align__(128) uint4 buffer[];
  __shared__ uint64_t full[STAGES];
  __shared__ float2 partial[2][WARPS];
  int thread = threadIdx.x;
  if(thread==0){ for(int s=0;s<STAGES;s++) asm volatile("mbarrier.init.shared::cta.b64 [%%0], 1;"::"r"(sa(full+s)):"memory"); asm volatile("fence.mbarrier_init.release.cluster;":::"memory"); }
  __syncthreads();
  if(thread==0) for(int s=0;s<STAGES;s++){ int row=blockIdx.x+s*gridDim.x; if(row<rows) load(buffer+s*(ROW_BYTES/16), x+(int64_t)row*HIDDEN, full+s); }
  uint4 w[VECTORS], b[VECTORS];
  for(int v=0;v<VECTORS;v++){ w[v]=reinterpret_cast<const uint4*>(weight)[v*THREADS+thread]; b[v]=reinterpret_cast<const uint4*>(bias)[v*THREADS+thread]; }
  int it=0;
  for(int row=blockIdx.x; row<rows; row+=gridDim.x, ++it){
    int s=it%%STAGES; await(full+s,(it/STAGES)&1);
    Row values;
    for(int v=0;v<VECTORS;v++) values.raw[v]=buffer[s*(ROW_BYTES/16)+v*THREADS+thread];
    Moments all=warp_moments(thread_moments(values));
    if(thread%%32==0) partial[it&1][thread/32]={all.mean,all.squares};
    __syncthreads();
    int next=row+STAGES*gridDim.x;
    if(thread==0 && next<rows) load(buffer+s*(ROW_BYTES/16), x+(int64_t)next*HIDDEN, full+s);
    all=row_moments(partial[it&1]);
    float rstd=rsqrtf(all.squares*(1.0f/HIDDEN)+eps);
    z_t* target=z+(int64_t)row*HIDDEN;
    for(int v=0;v<VECTORS;v++){ uint4 packed; for(int i=0;i<VECTOR;i++){ float normal=(element(values.raw[v],i)-all.mean)*rstd; reinterpret_cast<z_t*>(&packed)[i]=z_t(fmaf(normal,element(w[v],i),element(b[v],i))); } %(ST)s }
    if(thread==0){mean_out[row]=all.mean; rstd_out[row]=rstd;}
  }
}
extern "C" void solve(const x_t* x, const weight_t* weight, const bias_t* bias, z_t* z, mean_t* mean, rstd_t* rstd, int64_t rows, float eps, cudaStream_t stream){
  int bytes=STAGES*ROW_BYTES; cudaFuncSetAttribute(normalise,cudaFuncAttributeMaxDynamicSharedMemorySize,bytes);
  normalise<<<132*BLOCKS,THREADS,bytes,stream>>>(x,weight,bias,z,mean,rstd,(int)rows,eps);
}
'''
out=Path("kit")
for key in ("ln","lnh"):
  for S,B in ((4,3),(3,4),(6,2),(12,1),(2,5),(8,3) if key=="lnh" else (5,2),(6,3) if key=="lnh" else (3,3)):
   for st in ("d","cs"):
    ST={"d":"reinterpret_cast<uint4*>(target)[v*THREADS+thread]=packed;","cs":"__stcs(reinterpret_cast<uint4*>(target)+v*THREADS+thread,packed);"}[st]
    t=NA+head+K%dict(S=S,B=B,H="",HA="",HV="",ST=ST)
    name=f"{key}__tma_s{S}_b{B}_{st}"
    (out/f"{name}.cu").write_text(t+f'\n#include "main.h"\n#define NAME "{name}"\n'+MAIN[key]+"\n")
