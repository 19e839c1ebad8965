// Measures how many connections a second each way in gives, beside rdma_cm's own: Debian's cmtime.

#include "support/bench.hpp"
#include "support/cmtime.hpp"
#include "support/rounds.hpp"

#include <support/device.hpp>

#include <cordma/coro/when_all.hpp>
#include <cordma/runtime/runtime.hpp>
#include <cordma/security/credentials.hpp>

#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp is POSIX's.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using cordma::connection;
using cordma::task;
using clock_type = std::chrono::steady_clock;

constexpr int rounds = 40;
constexpr int connects_per_round = 10;
constexpr int cmtime_every = 8;  ///< rounds
constexpr unsigned cmtime_connections = 100;

/// The ends of one connection, both in this thread.
using ends = std::pair<connection, connection>;

/// A way in, which gives both ends of its next connection.
class method {
 public:
  explicit method(const char* called) : name{called} {}
  method(const method&) = delete;
  virtual ~method() = default;
  virtual task<ends> connect() = 0;

  const char* const name;
  std::vector<double> connect_us, close_us;
};

task<ends> meet(task<connection> client, task<connection> server) {
  auto [c, s] = co_await cordma::when_all(std::move(client), std::move(server));
  co_return ends{std::move(c), std::move(s)};
}

/// Any way that has a listener.
class by_listener final : public method {
 public:
  by_listener(cordma::runtime& rt, const char* called, const cordma::endpoint& at,
              const cordma::connection_changes& changes = {})
      : method{called}, rt_{rt}, changes_{changes}, acceptor_{rt.listen(at, {}, changes)} {}
  task<ends> connect() override {
    return meet(rt_.connect(acceptor_.local_endpoint(), changes_), acceptor_.accept());
  }

 private:
  cordma::runtime& rt_;
  const cordma::connection_changes changes_;
  cordma::listener acceptor_;
};

/// The texts go from one variable to the other.
class by_texts final : public method {
 public:
  explicit by_texts(cordma::runtime& rt) : method{"raw"}, rt_{rt} {}
  task<ends> connect() override {
    auto client = rt_.prepare_connection(), server = rt_.prepare_connection();
    const std::string from_client = client.info(), from_server = server.info();
    co_return co_await meet(client.connect(from_server), server.connect(from_client));
  }

 private:
  cordma::runtime& rt_;
};

/// A folder that is gone with the benchmark.
struct folder {
  folder() {
    std::string text = (std::filesystem::temp_directory_path() / "cordma.XXXXXX").string();
    if (::mkdtemp(text.data()) == nullptr) throw std::runtime_error{"no folder " + text};
    path = text;
  }
  folder(const folder&) = delete;
  ~folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

/// Credentials for both sides: a certificate that is signed by itself, made by the openssl tool.
cordma::credentials self_signed(const std::filesystem::path& in) {
  const std::string key = in / "key.pem", chain = in / "chain.pem";
  const std::string command =
      "openssl req -x509 -days 1 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc "
      "-subj /CN=bench -addext subjectAltName=IP:127.0.0.1 -keyout " +
      key + " -out " + chain + " 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> made{::popen(command.c_str(), "r"), &::pclose};
  while (made != nullptr && std::fgetc(made.get()) != EOF) continue;  // Until it has ended.
  return cordma::credentials::certificates({.chain = chain, .key = key, .authorities = chain});
}

/// The ways, and all that they need, made before they are measured.
struct kit {
  kit() {
    add("tcp", [&] { return listening("tcp", {}); });
    add("unix", [&] { return listening("unix", "unix:" + (files.path / "socket").string()); });
    add("rdma_cm", [&] { return listening("rdma_cm", by_cm(), {.insecure = true}); });
    // One queue pair and no handshake of ours: what cmtime measures.
    add("plain", [&] { return listening("plain", by_cm(), {.insecure = true, .plain = true}); });
    add("raw", [&] { return std::make_unique<by_texts>(rt); });
    add("psk", [&] { return listening("psk", {}, {.credentials = &shared_key()}); });
    add("rdma_cm+psk",
        [&] { return listening("rdma_cm+psk", by_cm(), {.credentials = &shared_key()}); });
    add("certificate", [&] {
      certificate = self_signed(files.path);
      return listening("certificate", {}, {.credentials = &*certificate});
    });
  }
  /// Adds what `make` returns, or prints why it is not possible here.
  template <class Make>
  void add(const char* name, Make make) try {
    methods.push_back(make());
  } catch (const cordma::error& e) {
    std::printf("  no %s: %s\n", name, e.what());
  }
  std::unique_ptr<method> listening(const char* name, const cordma::endpoint& at,
                                    const cordma::connection_changes& changes = {}) {
    return std::make_unique<by_listener>(rt, name, at, changes);
  }
  /// \errors errc::not_supported: cordma was built without OpenSSL.
  const cordma::credentials& shared_key() {
    if (!key) key = cordma::credentials::psk({"bench", std::vector(32, std::byte{7})});
    return *key;
  }
  cordma::endpoint by_cm() { return "rdma_cm:" + bench::cm_address(rt.context()) + ":0"; }

  folder files;
  std::optional<cordma::credentials> key, certificate;
  cordma::runtime rt{{.device = cordma::test::device_name()}};
  std::vector<std::unique_ptr<method>> methods;
};

double us_since(clock_type::time_point start) {
  return std::chrono::duration<double, std::micro>(clock_type::now() - start).count();
}

task<> connect_each(method& by) {
  for (int i = 0; i < connects_per_round; ++i) {
    const auto start = clock_type::now();
    ends both = co_await by.connect();
    by.connect_us.push_back(us_since(start));
    const auto connected = clock_type::now();
    co_await cordma::when_all(both.first.close(), both.second.close());
    by.close_us.push_back(us_since(connected));
  }
}

}  // namespace

BENCH_ON_DEVICE("connect/ways", "How many connections a second does each way in give?") {
  kit all;
  std::vector<double> theirs;
  for (int i = 0; i < rounds; ++i) {
    for (const auto& by : all.methods) all.rt.run(connect_each(*by));
    if (i % cmtime_every == 0) {
      theirs.push_back(bench::run_cmtime(bench::cm_address(all.rt.context()), cmtime_connections));
    }
  }
  const double cm = 1e6 / bench::median(theirs);
  for (const auto& by : all.methods) {
    const double connect = bench::median(by->connect_us), close = bench::median(by->close_us);
    recorder.count(by->name, "connect p50", "us", connect);
    recorder.count(by->name, "close p50", "us", close);
    recorder.count(std::string{by->name} + ", beside cmtime", "connections", "1/s",
                   1e6 / (connect + close), cm);
  }
}
