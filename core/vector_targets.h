// Which of Highway's targets kernels are compiled for; included before Highway. Their vectors have a size that the
// compiler knows, as members and elements of arrays must: CPUs with SVE run NEON.
#pragma once
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
