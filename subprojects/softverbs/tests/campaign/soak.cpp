#include "soak.hpp"

#include "process.hpp"
#include "run_cases.hpp"

#include <fcntl.h>
#include <unistd.h>

#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>

namespace soak {
namespace {

std::string skip_reason;  // the running case's; empty when the case was not skipped

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 0);
  if (*end != '\0') throw std::invalid_argument{std::string{name} + "=" + text + ": not a number"};
  return value;
}

/// A start without an end is a crash.
struct recorder final : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    skip_reason.clear();
    log("started", info.name);
  }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    const std::string& name = stats.testInfo.name;
    if (!stats.totals.assertions.allOk()) {
      log("failed", name);
    } else if (!skip_reason.empty()) {
      log("skipped", name + '\t' + skip_reason);
    } else {
      log("passed", name);
    }
  }
};
CATCH_REGISTER_LISTENER(recorder)

}  // namespace

std::uint64_t count(std::uint64_t full) {
  const std::uint64_t divisor =
      std::max<std::uint64_t>(1, number_from_environment("SOFTVERBS_SOAK_DIVISOR", 1));
  const std::uint64_t chosen =
      std::max<std::uint64_t>(1, number_from_environment("SOFTVERBS_SOAK_COUNT", full / divisor));
  std::cout << "count " << chosen << std::endl;
  log("count", std::to_string(chosen));
  return chosen;
}

std::uint64_t seed() {
  const std::uint64_t chosen = number_from_environment("SOFTVERBS_SEED", std::random_device{}());
  std::cout << "seed " << chosen << " (SOFTVERBS_SEED)" << std::endl;
  return chosen;
}

void log(std::string_view kind, std::string_view text) {
  const char* const folder = std::getenv("SOFTVERBS_TEST_LOG");
  if (folder == nullptr) return;
  const std::string path = std::string{folder} + "/native." + program_invocation_short_name + '.' +
                           std::to_string(::getpid()) + ".tsv";
  const std::string line = std::string{kind}.append("\t").append(text).append("\n");
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0 || ::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    std::cerr << "cannot write the test log " << path << '\n';
    std::abort();  // A case that is not counted would look like one that was never there.
  }
  ::close(fd);
}

void skip(std::string_view reason) {
  skip_reason = reason;
  std::cout << "skipped: " << Catch::getResultCapture().getCurrentTestName() << ": " << reason
            << '\n';
}

}  // namespace soak

int main(int argc, char** argv) {
  const int status = rig::play_role(argc, argv);
  return status >= 0 ? status : run_cases(argc, argv);
}
