#pragma once

/// Marks what a program links against: all else is hidden in libcordma.so. A class's members go
/// with it.
#define CORDMA_EXPORT [[gnu::visibility("default")]]
