#!/bin/bash
# compile all variants on all cores, run one after the other
cd "$(dirname "$0")"; mkdir -p bin
ls *__*.cu | xargs -P 16 -I{} sh -c 'k=$(echo {} | sed "s/__.*//"); nvcc -std=c++17 -O3 -arch=sm_90a -w -I$k -I. {} -o bin/{}.x 2>bin/{}.log || echo "FAILED {}: $(grep error bin/{}.log | head -1)"'
for f in bin/*.x; do timeout 20 $f || echo "$f ended $?"; done
