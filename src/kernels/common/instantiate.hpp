#pragma once

// For which types kernels are instantiated, in one place: k.cpp files hand a macro of their own to one of these lists.
// Storage is the type of parameters and activations; gradients of parameters have that type or fp32 (recipes with fp32
// gradients).

#include "core/types.hpp"

#define TRAINSTONE_FOR_EACH_STORAGE(instantiate) instantiate(float) instantiate(bf16) instantiate(fp16)

#define TRAINSTONE_FOR_EACH_STORAGE_AND_GRADIENT(instantiate)                                                          \
  instantiate(float, float) instantiate(bf16, bf16) instantiate(bf16, float) instantiate(fp16, fp16)                   \
      instantiate(fp16, float)
