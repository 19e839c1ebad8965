#pragma once

#include <cstddef>
#include <string_view>

#include <termios.h>

namespace top {

/// The terminal while the table is on it: another screen, without a cursor, whose keys come at
/// once. The destructor gives the terminal back as it was.
class terminal {
 public:
  struct size {
    std::size_t columns = 80;
    std::size_t rows = 24;
  };

  /// \errors std::system_error: the standard input or output is no terminal.
  terminal();
  terminal(terminal&&) = delete;
  ~terminal();

  /// Gives the terminal back for a while, until `enter`.
  void leave() noexcept;
  void enter();
  [[nodiscard]] size dimensions() const noexcept;
  /// Shows a text of lines in place of what was there, and cuts what does not fit in height.
  void show(std::string_view text);
  /// Returns the next key that has been pressed; 0: none.
  [[nodiscard]] char key() noexcept;

 private:
  termios before_{};
  bool is_entered_ = false;
};

}  // namespace top
