/* SPDX-License-Identifier: MIT */
/* Stands in for liburcu's header of this name: nothing of it is used (bp.c). */
