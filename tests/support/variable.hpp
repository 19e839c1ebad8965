#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace cordma::test {

/// Sets a variable of the environment, until it is destroyed. Null: unsets it.
class variable {
 public:
  variable(const char* name, const char* value) : name_{name} { set(value); }
  ~variable() { set(before_ ? before_->c_str() : nullptr); }
  variable(const variable&) = delete;
  variable& operator=(const variable&) = delete;

 private:
  void set(const char* value) const {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the test has one thread.
    if ((value == nullptr ? ::unsetenv(name_) : ::setenv(name_, value, 1)) != 0) std::abort();
  }
  [[nodiscard]] std::optional<std::string> now() const {
    const char* const text = std::getenv(name_);  // NOLINT(concurrency-mt-unsafe)
    return text == nullptr ? std::nullopt : std::optional<std::string>{text};
  }

  const char* name_;
  std::optional<std::string> before_ = now();
};

}  // namespace cordma::test
