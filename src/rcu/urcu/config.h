/* SPDX-License-Identifier: MIT */
/* What liburcu's configure would find out. */
#define CONFIG_RCU_SMP 1
#define CONFIG_RCU_TLS 1
#define CONFIG_RCU_HAVE_CLOCK_GETTIME 1
#define CONFIG_RCU_HAVE_MULTIFLAVOR 1
