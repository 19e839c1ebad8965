#pragma once

#include <cstdio>
#include <string>

namespace softverbs::run {

/// The lines of --check.
class report {
 public:
  void ok(const char* subject, const std::string& text) { say("ok", subject, text); }
  void note(const char* subject, const std::string& text) { say("note", subject, text); }
  void problem(const char* subject, const std::string& text) {
    ++problems_;
    say("problem", subject, text);
  }
  [[nodiscard]] int problems() const noexcept { return problems_; }

 private:
  static void say(const char* what, const char* subject, const std::string& text) {
    std::printf("%-8s %-9s %s\n", what, subject, text.c_str());
  }

  int problems_ = 0;
};

}  // namespace softverbs::run
