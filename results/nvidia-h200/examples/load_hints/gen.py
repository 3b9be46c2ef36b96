import re, sys
from pathlib import Path
from cudahercules.task.load import load_task
from cudahercules.task import header
out = Path("kit"); out.mkdir(exist_ok=True)
T = {"ln": ("module/layernorm_fwd/fp32_4096@general", "module/layernorm_fwd"), "lnh": ("module/layernorm_fwd/bf16_4096@general", "module/layernorm_fwd"),
     "sm": ("kernel/softmax/bf16@general", "kernel/softmax"), "fft": ("module/fft_c2c_1d/fp32_1024@general", "module/fft_c2c_1d")}
NA = '''
#include <cuda_runtime.h>
__device__ inline uint4 ld_na(const uint4* p){uint4 v; asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];":"=r"(v.x),"=r"(v.y),"=r"(v.z),"=r"(v.w):"l"(p)); return v;}
__device__ inline float2 ld_na(const float2* p){float2 v; asm volatile("ld.global.nc.L1::no_allocate.v2.f32 {%0,%1}, [%2];":"=f"(v.x),"=f"(v.y):"l"(p)); return v;}
__device__ inline uint4 ld_256(const uint4* p){uint4 v; asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];":"=r"(v.x),"=r"(v.y),"=r"(v.z),"=r"(v.w):"l"(p)); return v;}
__device__ inline float2 ld_256(const float2* p){float2 v; asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.f32 {%0,%1}, [%2];":"=f"(v.x),"=f"(v.y):"l"(p)); return v;}
template<class T> __device__ inline T ld_plain(const T* p){return *p;}
'''
def write(task, name, text):
    (out/f"{task}__{name}.cu").write_text(NA+text)
for key,(tid,fam) in T.items():
    task = load_task(tid)
    d = out/key; d.mkdir(exist_ok=True)
    (d/"solve.h").write_text(header.solve_header(task))
    src = (task.directory/"tuned.cu").read_text()
    loads = {"cs":"__ldcs","plain":"ld_plain","na":"ld_na","l256":"ld_256"}
    for ln, fn in loads.items():
        s = src.replace("__ldcs", fn)
        write(key, f"{ln}", s)
        if key in ("ln","lnh"):
            write(key, f"{ln}_stcs", s.replace("reinterpret_cast<uint4*>(target)[at] = packed;","__stcs(reinterpret_cast<uint4*>(target)+at, packed);"))
            for th in (128,512):
                if 4096*(4 if key=="ln" else 2)//th//16 in (2,4,8):
                    s2 = s.replace("WARP_A_ROW ? 128 : 256", f"WARP_A_ROW ? 128 : {th}").replace("VECTORS == 2 ? 1536","VECTORS == 2 ? 2048" if th==512 else "VECTORS == 2 ? 1536")
                    write(key, f"{ln}_t{th}", s2)
            for bl in (1024,1536,2048):
                s2 = re.sub(r"VECTORS == 2 \? 1536[^;]*;", f"{bl};", s)
                write(key, f"{ln}_b{bl}", s2)
        if key=="fft":
            write(key, f"{ln}_stcs", s.replace("y[32 * d + lane] = v[reversed(d)];","__stcs(y + 32 * d + lane, v[reversed(d)]);"))
            for w in (1,4,8):
                write(key, f"{ln}_w{w}", s.replace("constexpr int WARPS = 2;",f"constexpr int WARPS = {w};"))
            for n in (12,20):
                write(key, f"{ln}_n{n}", s.replace("WARPS * 32, 16 / WARPS",f"WARPS * 32, {n} / WARPS"))
        if key=="sm":
            for th in (64,256,512):
                k = 4096*2//16//th
                s2 = s.replace("block_rows<128, 4><<<(unsigned)rows, 128,", f"block_rows<{th}, {k}><<<(unsigned)rows, {th},")
                write(key, f"{ln}_t{th}", s2)
    if key in ("ln","lnh"):
        r = (task.directory/"registers.cu").read_text()
        write(key, "registers", r)
        for th in (512,1024):
            if 4096*(4 if key=="ln" else 2)//th//16>=1:
                write(key, f"registers_t{th}", r.replace("HIDDEN >= 4096 ? 256", f"HIDDEN >= 4096 ? {th}"))
(out/"main.h").write_text(r'''
#include <cstdio>
#include <vector>
#include <algorithm>
__global__ void fl_w(uint4* p, size_t n, unsigned s){for(size_t i=blockIdx.x*(size_t)blockDim.x+threadIdx.x;i<n;i+=gridDim.x*(size_t)blockDim.x)p[i]=make_uint4(s,s,s,(unsigned)i);}
__global__ void fl_r(const uint4* p, size_t n, unsigned* o){unsigned a=0;for(size_t i=blockIdx.x*(size_t)blockDim.x+threadIdx.x;i<n;i+=gridDim.x*(size_t)blockDim.x){uint4 v=p[i];a^=v.x^v.y^v.z^v.w;}if(a==0x12345)*o=a;}
__global__ void rnd(unsigned* p, size_t n, int half, unsigned s){for(size_t i=blockIdx.x*(size_t)blockDim.x+threadIdx.x;i<n;i+=gridDim.x*(size_t)blockDim.x){unsigned h=(unsigned)i*2654435761u^s;h^=h>>15;h*=0x85ebca6b;h^=h>>13; if(half){p[i]=(h&0x00ff00ffu&0x007f007fu)|0x3f803f80u|((h>>3)&0x80008000u);}else{p[i]=(h&0x007fffff)|0x3f800000|(h&0x80000000);}}}
template<class F> void go(const char* name, F f){
  uint4 *a,*b; unsigned*o; size_t n=(120u<<20)/16; cudaMalloc(&a,n*16);cudaMalloc(&b,n*16);cudaMalloc(&o,4);
  cudaEvent_t e0,e1;cudaEventCreate(&e0);cudaEventCreate(&e1); cudaStream_t st; cudaStreamCreateWithFlags(&st,cudaStreamNonBlocking);
  std::vector<float> t; for(int k=0;k<28;k++){fl_w<<<528,512,0,st>>>(a,n,k);fl_r<<<528,512,0,st>>>(b,n,o);cudaEventRecord(e0,st);f(st);cudaEventRecord(e1,st);cudaStreamSynchronize(st);float ms;cudaEventElapsedTime(&ms,e0,e1);if(k>2)t.push_back(ms*1000);}
  std::sort(t.begin(),t.end()); printf("%-24s %8.2f us  (min %.2f) %s\n",name,t[t.size()/2],t[0],cudaGetErrorString(cudaGetLastError()));
}
template<class T> T* mk(size_t n,int half,unsigned s){T*p;cudaMalloc(&p,n*sizeof(T));rnd<<<1024,256>>>((unsigned*)p,n*sizeof(T)/4,half,s);return p;}
''')
MAIN = {"ln": '''int main(){ size_t r=16384; auto x=mk<x_t>(r*4096,sizeof(x_t)==2,1); auto w=mk<weight_t>(4096,sizeof(x_t)==2,2); auto b=mk<bias_t>(4096,sizeof(x_t)==2,3); auto z=mk<z_t>(r*4096,0,4); float*m,*q;cudaMalloc(&m,r*4);cudaMalloc(&q,r*4); cudaDeviceSynchronize(); go(NAME,[&](cudaStream_t s){solve(x,w,b,z,m,q,r,1e-5f,s);}); }''',
"sm": '''int main(){ size_t r=32768; auto x=mk<x_t>(r*4096,1,1); auto y=mk<y_t>(r*4096,0,2); cudaDeviceSynchronize(); go(NAME,[&](cudaStream_t s){solve(x,y,r,4096,s);}); }''',
"fft": '''int main(){ size_t r=65536; auto x=mk<float2>(r*1024,0,1); auto y=mk<float2>(r*1024,0,2); cudaDeviceSynchronize(); go(NAME,[&](cudaStream_t s){solve((x_t*)x,(y_t*)y,r,s);}); }'''}
MAIN["lnh"]=MAIN["ln"]
for f in sorted(out.glob("*__*.cu")):
    key=f.name.split("__")[0]
    f.write_text(f.read_text()+f'\n#include "main.h"\n#define NAME "{f.stem}"\n'+MAIN[key]+"\n")
print(len(list(out.glob("*__*.cu"))))
