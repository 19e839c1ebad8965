#define CATCH_CONFIG_RUNNER
#include "link/peer.hpp"

#include <catch2/catch.hpp>

#include <cstring>

/// A forked child starts an engine of its own, which ThreadSanitizer refuses unless told otherwise.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--peer") == 0) return softverbs::test::be_peer(argc, argv);
  return Catch::Session().run(argc, argv);
}
