// cordma-top as people run it: beside programs that serve metrics, and servers that do not.

#include "support/commands.hpp"
#include "support/connected_pair.hpp"
#include "support/http.hpp"
#include "support/temporary_folder.hpp"
#include "support/variable.hpp"
#include "tools/folders.hpp"
#include "top/fetch.hpp"
#include "top/page.hpp"

#include <cordma/runtime/metrics.hpp>

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>
#include <catch2/catch.hpp>

#include <atomic>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>

using Catch::Matchers::Contains;
using cordma::metrics_server;
using cordma::test::outcome;
using cordma::test::run;

namespace {

constexpr const char* top_command = CORDMA_TOP;

std::string unix_name(const char* part) {
  return "unix:@cordma-test-" + std::string{part} + '-' + std::to_string(::getpid());
}

outcome run_top(const std::string& arguments) {
  return run(std::string{top_command} + ' ' + arguments);
}

/// A page whose counter has risen by 1000 each time.
std::string rising_page(std::atomic<unsigned>& served) {
  cordma::metrics one;
  one.device = "soft0";
  one.transfer.of(cordma::request_kind::write).completed = 1000 * ++served;
  return cordma::to_prometheus(one);
}

/// Fetches until the end, or gives up after `timeout_ms` without a word.
top::fetch fetched(const std::string& from, int timeout_ms = 10000) {
  top::fetch page{top::parse_target(from)};
  while (!page.has_ended()) {
    pollfd waiting{page.fd(), page.events(), 0};
    if (::poll(&waiting, 1, timeout_ms) != 1) page.give_up();
    if (!page.has_ended()) page.advance();
  }
  return page;
}

/// A server of one connection that answers a request by a text, whatever it is.
class odd_server {
 public:
  explicit odd_server(const char* part, std::string answer, bool keeps_open = false)
      : name{unix_name(part)}, answer_{std::move(answer)}, keeps_open_{keeps_open} {
    const auto address = cordma::socket_address::unix_path(name.substr(5));
    listening_ = cordma::unique_fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    REQUIRE(::bind(listening_.get(), address.data(), address.size_bytes()) == 0);
    REQUIRE(::listen(listening_.get(), 1) == 0);
    thread_ = std::thread{[this] { serve(); }};
  }
  odd_server(odd_server&&) = delete;
  ~odd_server() {
    ::shutdown(listening_.get(), SHUT_RDWR);
    thread_.join();
  }
  const std::string name;

 private:
  void serve() {
    const cordma::unique_fd client{::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    if (!client.is_open()) return;
    char request[4096];
    static_cast<void>(::recv(client.get(), request, sizeof request, 0));
    for (std::size_t sent = 0; sent < answer_.size();) {
      const ssize_t n =
          ::send(client.get(), answer_.data() + sent, answer_.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += std::size_t(n);
    }
    if (keeps_open_) static_cast<void>(::recv(client.get(), request, 1, 0));
  }

  const std::string answer_;
  const bool keeps_open_;
  cordma::unique_fd listening_;
  std::thread thread_;
};

std::string why_not(const top::fetch& page) {
  return page.now() == top::fetch::state::failed ? page.reason() : "it has come";
}

/// cordma-top on a pseudo-terminal of the test's.
class terminal_run {
 public:
  explicit terminal_run(const std::string& target) {
    winsize size{.ws_row = 10, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
    int inner = -1;
    REQUIRE(::openpty(&outer_, &inner, nullptr, nullptr, &size) == 0);
    inner_ = cordma::unique_fd{inner};  // Keeps the terminal when the program has gone.
    REQUIRE(::tcgetattr(inner, &before_) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::login_tty(inner);
      ::execl(top_command, top_command, "--interval", "0.1", target.c_str(), nullptr);
      ::_exit(127);
    }
  }
  terminal_run(terminal_run&&) = delete;
  ~terminal_run() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(outer_);
  }

  /// Reads until the text comes, and gives all up to there.
  std::string read_until(const std::string& text) {
    std::string all;
    char chunk[4096];
    while (all.find(text) == std::string::npos) {
      REQUIRE(all.size() < 65536);  // Some hundred screens.
      pollfd said{outer_, POLLIN, 0};
      const bool has_come = ::poll(&said, 1, 20000) == 1;
      const ssize_t n = has_come ? ::read(outer_, chunk, sizeof chunk) : 0;
      INFO(all);
      REQUIRE(n > 0);
      all.append(chunk, std::size_t(n));
    }
    return all;
  }
  void type(const char* keys) {
    REQUIRE(::write(outer_, keys, std::strlen(keys)) == ssize_t(std::strlen(keys)));
  }
  void resize(unsigned short columns) {
    winsize size{.ws_row = 10, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(::ioctl(outer_, TIOCSWINSZ, &size) == 0);
  }
  void signal(int number) { REQUIRE(::kill(pid_, number) == 0); }
  /// Waits for its end, and returns the status of waitpid(2).
  int end() {
    int status = 0;
    REQUIRE(::waitpid(std::exchange(pid_, 0), &status, 0) > 0);
    return status;
  }
  [[nodiscard]] bool is_echoing() {
    termios now{};
    REQUIRE(::tcgetattr(inner_.get(), &now) == 0);
    return (now.c_lflag & (ECHO | ICANON)) == (before_.c_lflag & (ECHO | ICANON));
  }

 private:
  int outer_ = -1;
  cordma::unique_fd inner_;
  termios before_{};
  pid_t pid_ = 0;
};

}  // namespace

TEST_CASE("cordma-top shows what a program does, found by its process", "[tools][device]") {
  const cordma::test::variable on{"CORDMA_METRICS", "on"};
  cordma::test::connected_pair p;
  cordma::local_mr memory = p.rt.memory(cordma::test::all_access).allocate_zeroed(128);
  std::atomic<bool> is_over = false;
  outcome ran;
  std::thread user{[&] {
    ran = run_top("--once --json --interval 0.2 " + std::to_string(::getpid()) +
                  " | python3 -c 'import json, sys; p, = json.load(sys.stdin)[\"programs\"];"
                  "f = p[\"figures\"]; print(p[\"pid\"], p[\"device\"], p[\"state\"], "
                  "f[\"writes_per_s\"] > 0, f[\"connections\"], f[\"registered_bytes\"] > 0)'");
    is_over = true;
  }};
  auto write_on = [](cordma::test::connected_pair& of, cordma::local_mr& bytes,
                     std::atomic<bool>& until) -> cordma::task<> {
    while (!until) co_await of.client.write(bytes.slice(0, 64), bytes.remote_slice().slice(64, 64));
  };
  p.rt.run(write_on(p, memory, is_over));
  user.join();
  CHECK(ran.output == std::to_string(::getpid()) + ' ' + std::string{p.rt.device_name()} +
                          " running True 2 True\n");
  CHECK(ran.exit_status == 0);
}

TEST_CASE("cordma-top prints as many tables as it is asked for", "[tools]") {
  std::atomic<unsigned> served = 0;
  const metrics_server server{unix_name("tables"), [&] { return rising_page(served); }};
  const std::string where = server.local_endpoint().to_string();
  const outcome ran = run_top("--count 2 --interval 0.1 " + where);
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK(served == 3);
  std::size_t tables = 0;
  for (std::size_t at = 0; (at = ran.output.find("PID PROGRAM", at)) != std::string::npos; ++at)
    ++tables;
  CHECK(tables == 2);
  CHECK_THAT(ran.output, Contains(std::to_string(::getpid()) + " test_tools"));
  // A pipe is no terminal: without an option tables are printed, too, until nobody reads them.
  CHECK_THAT(run_top("--interval 0.1 " + where + " | head -n 2").output,
             Contains("PID PROGRAM") && !Contains("\x1b"));
}

TEST_CASE("cordma-top names a page that cannot be read, and why", "[tools]") {
  const outcome nobody = run_top("--once --interval 0.1 " + unix_name("nobody"));
  CHECK(nobody.exit_status == 1);
  CHECK_THAT(nobody.output, Contains("unreadable: connect: Connection refused"));
  const metrics_server other{unix_name("other"), [] { return std::string{"up 1\n"}; }};
  const outcome foreign = run_top("--once --interval 0.1 " + other.local_endpoint().to_string());
  CHECK(foreign.exit_status == 1);
  CHECK_THAT(foreign.output, Contains("unreadable: the page has no metrics of cordma"));
  const outcome absent = run_top("--once --interval 0.1 1");
  CHECK(absent.exit_status == 1);
  CHECK_THAT(absent.output, Contains("start it with CORDMA_METRICS=on"));
}

TEST_CASE("cordma-top refuses wrong arguments by exit status 2", "[tools]") {
  for (const char* arguments :
       {"--nonesuch", "--interval 0", "--interval x", "--count 0", "--once --count 2", "nonesuch",
        "0", "99999999999", "https://host:1/metrics", "rdma_cm:host:1", "unix:"}) {
    const outcome ran = run_top(arguments);
    INFO(arguments << ": " << ran.output);
    CHECK(ran.exit_status == 2);
    CHECK_THAT(ran.output, Contains("cordma-top: "));
  }
  CHECK_THAT(run_top("--help").output, Contains("--once") && Contains("Exit status: 0"));
}

TEST_CASE("a page is fetched from good servers, and no other", "[tools]") {
  std::atomic<unsigned> served = 0;
  const metrics_server tcp{"127.0.0.1:0", [&] { return rising_page(served); }};
  const top::fetch good = fetched("http://" + tcp.local_endpoint().to_string() + "/metrics");
  CHECK(why_not(good) == "it has come");
  CHECK(good.body() == [] {
    std::atomic<unsigned> first = 0;
    return rising_page(first);
  }());
  CHECK(why_not(fetched("http://" + tcp.local_endpoint().to_string() + "/x")) ==
        "it answers: HTTP/1.1 404 Not Found");

  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const odd_server plain{"plain", ok + "\r\ncordma_a 1\n"};
  CHECK(fetched(plain.name).body() == "cordma_a 1\n");
  const odd_server more{"more", ok + "content-LENGTH:  11\r\n\r\ncordma_a 1\nand more"};
  CHECK(fetched(more.name).body() == "cordma_a 1\n");
  const odd_server cut{"cut", ok + "Content-Length: 12\r\n\r\ncordma_a 1\n"};
  CHECK(why_not(fetched(cut.name)) == "its page is cut short");
  const odd_server empty{"empty", ""};
  CHECK(why_not(fetched(empty.name)) == "it answers nothing");
  const odd_server ssh{"ssh", "SSH-2.0-OpenSSH_9.2\r\n"};
  CHECK(why_not(fetched(ssh.name)) == "it does not speak HTTP");
  const odd_server endless{"endless", ok + "\r\n" + std::string(2 * top::page::bytes_max, '#')};
  CHECK(why_not(fetched(endless.name)) == "its page is too long");
  const odd_server silent{"mute", "", true};
  CHECK(why_not(fetched(silent.name, 50)) == "it does not answer in time");
}

TEST_CASE("cordma-top on a terminal shows, obeys keys and gives the terminal back", "[tools]") {
  std::atomic<unsigned> served = 0;
  const metrics_server server{unix_name("screen"), [&] { return rising_page(served); }};
  const std::string where = server.local_endpoint().to_string();
  {
    terminal_run shown{where};
    const std::string screen = shown.read_until("k\x1b[K");  // A rate of thousands.
    CHECK_THAT(screen, Contains("\x1b[?1049h") && Contains("1 programs, every 0.1 s; q quits") &&
                           Contains("test_tools") && Contains("WRITE/s\x1b[K") &&
                           !Contains("READ/s"));
    CHECK_FALSE(shown.is_echoing());
    shown.resize(100);
    shown.read_until("FAIL/s");
    shown.type("xq");
    shown.read_until("\x1b[?1049l");
    CHECK(shown.end() == 0);
    CHECK(shown.is_echoing());
  }
  for (const int number : {SIGINT, SIGTERM}) {
    terminal_run shown{where};
    shown.read_until("test_tools");
    shown.signal(number);
    shown.read_until("\x1b[?1049l");
    const int status = shown.end();
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == number);
    CHECK(shown.is_echoing());
  }
}

TEST_CASE("cordma-top shows that a program has ended, and then no more of it", "[tools]") {
  std::atomic<unsigned> served = 0;
  std::optional<metrics_server> server;
  server.emplace("unix:@cordma-metrics-" + std::to_string(::getpid()),
                 [&] { return rising_page(served); });
  terminal_run shown{std::to_string(::getpid())};
  shown.read_until("test_tools");
  server.reset();
  shown.read_until("ended");
  shown.read_until("no such program serves its metrics");
}
