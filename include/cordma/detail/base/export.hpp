#pragma once

#ifndef __cpp_exceptions
// A missing file ends the compilation at once, where #error would let it go on.
#include <cordma reports errors by exceptions: compile without -fno-exceptions>
#endif

/// Marks what a program links against: all else is hidden in libcordma.so. A class's members go
/// with it.
#define CORDMA_EXPORT [[gnu::visibility("default")]]
