/* SPDX-License-Identifier: MIT */
#include "base/lock.h"
#include "base/mem.h"
#include "base/slab.h"

PLX_LARGE char plx_mem_near[PLX_MEM_NEAR];
PLX_LARGE char plx_slab_near[PLX_SLAB_NEAR] __attribute__((aligned(PLX_SLAB_OBJECT)));
