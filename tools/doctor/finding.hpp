#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace doctor {

enum class severity : std::uint8_t {
  ok,       ///< All is as it should be.
  note,     ///< Works; worth knowing.
  warning,  ///< Works, but slower, or not for all programs.
  error,    ///< Does not work.
};
const char* to_string(severity how) noexcept;

/// One result of a check, as data: text and JSON are two printers of it.
struct finding {
  std::string check{};  ///< Stable name of the check: "memlock", "try.read".
  doctor::severity severity = doctor::severity::ok;
  std::string value{};  ///< The value that was found.
  std::string why{};    ///< Why the value matters.
  std::string mend{};   ///< The command, or the change, that mends it; empty: there is no need.
};

/// The findings, in the order in which they were made.
class report {
 public:
  using listener = std::function<void(const finding&)>;

  report() = default;
  /// \param on_add  is told each finding at once: a try may take seconds.
  explicit report(listener on_add) : on_add_{std::move(on_add)} {}

  void add(finding f);
  void ok(std::string check, std::string value, std::string why) {
    add({std::move(check), severity::ok, std::move(value), std::move(why), {}});
  }
  void note(std::string check, std::string value, std::string why, std::string mend = {}) {
    add({std::move(check), severity::note, std::move(value), std::move(why), std::move(mend)});
  }
  void warning(std::string check, std::string value, std::string why, std::string mend) {
    add({std::move(check), severity::warning, std::move(value), std::move(why), std::move(mend)});
  }
  void error(std::string check, std::string value, std::string why, std::string mend) {
    add({std::move(check), severity::error, std::move(value), std::move(why), std::move(mend)});
  }

  [[nodiscard]] const std::vector<finding>& all() const noexcept { return all_; }
  /// Returns the last finding of a check; null: there is none.
  [[nodiscard]] const finding* find(const std::string& check) const noexcept;
  [[nodiscard]] std::size_t count(severity how) const noexcept;
  [[nodiscard]] severity worst() const noexcept;

 private:
  listener on_add_;
  std::vector<finding> all_;
};

}  // namespace doctor
