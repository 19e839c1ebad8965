#include "support/skip.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "support/log.hpp"

#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <string>

namespace cordma::test {
namespace {

std::string skip_reason;  // the running test case's; empty when the case was not skipped

std::string log_path() {
  const char* const folder = std::getenv("CORDMA_TEST_LOG");  // NOLINT(concurrency-mt-unsafe)
  if (folder == nullptr) return {};
  const char* const device = std::getenv("CORDMA_TEST_DEVICE");  // NOLINT(concurrency-mt-unsafe)
  return std::string{folder} + '/' + (device != nullptr ? device : "native") + '.' +
         program_invocation_short_name + '.' + std::to_string(::getpid()) + ".tsv";
}

/// Records each test case's start and end. A start without an end is a crash.
class recorder final : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    TestEventListenerBase::testCaseStarting(info);
    skip_reason.clear();
    log_line("started", info.name);
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    const std::string& name = stats.testInfo.name;
    if (!stats.totals.assertions.allOk()) {
      log_line("failed", name);
    } else if (!skip_reason.empty()) {
      log_line("skipped", name + '\t' + skip_reason);
    } else {
      log_line("passed", name);
    }
    TestEventListenerBase::testCaseEnded(stats);
  }
};

CATCH_REGISTER_LISTENER(recorder)

}  // namespace

void log_line(std::string_view kind, std::string_view text) {
  static const std::string path = log_path();
  if (path.empty()) return;
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

}  // namespace cordma::test
