#include "ikp.cuh"

// Every verb, in straight-line code, a loop and a branch. Lane 0 names itself.
extern "C" __global__ void every_verb(unsigned char* segment, unsigned bytes, unsigned n) {
  ikp::init({segment, bytes});
  auto whole = ikp::start("whole");
  for (unsigned i = 0; i < n; ++i) {
    ikp::Range range("step", i);
    if (i % 2) ikp::instant("odd", -static_cast<int>(i));
  }
  auto outer = ikp::start("first");
  auto inner = ikp::start("second", 0.1f);
  ikp::end(outer);  // overlapping: what began first ends first
  ikp::end(inner);
  ikp::instant(ikp::Region(7), threadIdx.x + 1000 * blockIdx.x);
  ikp::end(whole);
  ikp::finish();
}
