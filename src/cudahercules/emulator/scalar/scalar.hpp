// Every per-thread PTX instruction as a pure inline function. `table.py` says which instruction is which function.
#pragma once

#include "approx.hpp"
#include "convert.hpp"
#include "encode.hpp"
#include "float.hpp"
#include "half.hpp"
#include "integer.hpp"
