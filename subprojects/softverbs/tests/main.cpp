#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>

/// A forked child starts an engine of its own, which ThreadSanitizer refuses unless told otherwise.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
