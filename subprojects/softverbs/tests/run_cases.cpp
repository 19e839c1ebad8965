#include "run_cases.hpp"

#define CATCH_CONFIG_RUNNER
// Faults are the guarded copy's to handle, not Catch2's.
#define CATCH_CONFIG_NO_POSIX_SIGNALS
#include <catch2/catch.hpp>

/// A forked child starts an engine of its own, which ThreadSanitizer refuses unless told otherwise.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

int run_cases(int argc, char** argv) { return Catch::Session().run(argc, argv); }
