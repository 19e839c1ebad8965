#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

namespace top {
namespace {

// ECMA-48, and DEC's private modes: the alternate screen, the cursor.
constexpr std::string_view enter_screen = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view leave_screen = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view to_the_top = "\x1b[H";
constexpr std::string_view end_of_line = "\x1b[K\n";
constexpr std::string_view clear_below = "\x1b[J";

void write_all(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno != EINTR) return;  // The terminal has gone; a signal tells.
    if (n > 0) text.remove_prefix(std::size_t(n));
  }
}

}  // namespace

terminal::terminal() {
  if (::tcgetattr(STDIN_FILENO, &before_) != 0)
    throw std::system_error{errno, std::generic_category(), "the standard input"};
  enter();
}

terminal::~terminal() { leave(); }

void terminal::enter() {
  termios raw = before_;
  raw.c_lflag &= ~tcflag_t(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  if (::tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw) != 0)
    throw std::system_error{errno, std::generic_category(), "tcsetattr"};
  is_entered_ = true;
  write_all(enter_screen);
}

void terminal::leave() noexcept {
  if (!is_entered_) return;
  is_entered_ = false;
  write_all(leave_screen);
  static_cast<void>(::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_));
}

terminal::size terminal::dimensions() const noexcept {
  winsize now{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &now) != 0 || now.ws_col == 0 || now.ws_row == 0)
    return {};
  return {now.ws_col, now.ws_row};
}

void terminal::show(std::string_view text) {
  std::string screen{to_the_top};
  const std::size_t rows = dimensions().rows;
  for (std::size_t row = 1; row < rows && !text.empty(); ++row) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    (screen += line) += end_of_line;
  }
  write_all(screen += clear_below);
}

char terminal::key() noexcept {
  char pressed = 0;
  return ::read(STDIN_FILENO, &pressed, 1) == 1 ? pressed : '\0';
}

}  // namespace top
