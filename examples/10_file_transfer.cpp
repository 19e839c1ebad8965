// A client sends files to a server. The client lends a file piece by piece, each with a call. The
// server fetches the pieces by READ, several at once, and writes each to its place. The file gets
// its name when the server has read it back and found the client's checksum.
//
// `server` prints its address and runs until its client is done. Files go into FOLDER, or else into
// the folder where the server was started. `client HOST:PORT DEVICE FILE [NAME]` connects to that
// address; NAME is what the file is called then. The first device is '' (`examples/processes`
// starts both).

#include "crc64.hpp"
#include "incoming_file.hpp"

#include <cordma/cordma.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace {

using cordma::rpc::nothing;

constexpr std::size_t piece_max = std::size_t{1} << 20;
constexpr unsigned pieces_at_once = 4;
constexpr std::chrono::minutes deadline{10};          // for a call; longer for the last one
constexpr std::uint64_t bytes_a_second = 50'000'000;  // the server reads a file back so fast
constexpr int bar_columns = 50;

struct offer {
  std::uint64_t size_bytes = 0;
  std::array<char, 256> name{};  // the rest is zeros
};
struct begin : cordma::rpc::method<"file.begin", offer> {};
/// Tells where the bytes belong that are lent as the `source`.
struct piece : cordma::rpc::method<"file.piece", std::uint64_t> {};
/// The checksum of all of them.
struct end : cordma::rpc::method<"file.end", std::uint64_t> {};

/// The files of a client, which sends one at a time.
struct receiver {
  const std::string folder;
  std::unique_ptr<incoming_file> file{};
  unsigned begun = 0, kept = 0;

  incoming_file& open_file() {
    if (!file) throw std::runtime_error{"no file was begun"};
    return *file;
  }
  cordma::task<nothing> begin_file(offer o) {
    if (file) throw std::runtime_error{"the file before has not ended"};
    ++begun;
    const std::string_view name{o.name.begin(), std::ranges::find(o.name, '\0')};
    file = std::make_unique<incoming_file>(folder, name, o.size_bytes);
    co_return nothing{};
  }
  cordma::task<nothing> take_piece(std::uint64_t offset, cordma::rpc::server_call& call) {
    const cordma::local_mr bytes = co_await call.fetch_source(piece_max);
    open_file().write(offset, bytes.bytes());  // The file may have ended during the READ.
    co_return nothing{};
  }
  cordma::task<nothing> end_file(std::uint64_t told) {
    open_file();
    const auto whole = std::move(file);  // From here on no piece changes it.
    const std::uint64_t found = co_await whole->checksum();
    if (found != told) {
      char text[80];
      std::snprintf(text, sizeof text, "its checksum is %016jx here, and %016jx was told",
                    std::uintmax_t{found}, std::uintmax_t{told});
      throw std::runtime_error{text};
    }
    whole->keep();
    ++kept;
    co_return nothing{};
  }
};

cordma::task<> serve(cordma::listener& listener, std::string folder) {
  cordma::connection conn = co_await listener.accept();
  receiver files{std::move(folder)};
  cordma::rpc::server server{{.calls_per_connection_max = pieces_at_once}};
  server.handle<begin>([&](offer o) { return files.begin_file(o); });
  server.handle<piece>([&](std::uint64_t offset, cordma::rpc::server_call& call) {
    return files.take_piece(offset, call);
  });
  server.handle<end>([&](std::uint64_t sum) { return files.end_file(sum); });
  co_await server.serve(std::move(conn));
  if (files.file) throw std::runtime_error{"server: the client left in the middle of a file"};
  if (files.kept < files.begun) throw std::runtime_error{"server: what was sent is not kept"};
}

/// Shows the progress, on a terminal only.
void show_progress(std::uint64_t done, std::uint64_t all) {
  static const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  if (!is_terminal) return;
  const double part = double(done) / double(all);
  const std::string bar(std::size_t(part * bar_columns), '#');
  std::printf("\r[%-*s] %3.0f %%%s", bar_columns, bar.c_str(), part * 100, done == all ? "\n" : "");
  std::fflush(stdout);
}

/// A file that is being sent.
struct outgoing_file {
  /// Not blocking: else a pipe would be waited for.
  explicit outgoing_file(const std::string& file)
      : path{file}, fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)} {
    const struct stat status = now();
    if (!S_ISREG(status.st_mode)) throw std::runtime_error{path + ": not a regular file"};
    size_bytes = std::uint64_t(status.st_size);
  }
  /// Throws if the file's length has changed: the client sends no more than the length that it
  /// told.
  void check_unchanged() const {
    if (std::uint64_t(now().st_size) != size_bytes) throw std::runtime_error{path + ": has grown"};
  }
  [[nodiscard]] struct stat now() const {
    struct stat status{};
    check(fd.is_open() && ::fstat(fd.get(), &status) == 0, path);
    return status;
  }
  const std::string path;
  cordma::unique_fd fd;
  std::uint64_t size_bytes = 0, begun = 0, sent = 0;
  crc64 sum;
};

/// Sends a piece after another, while any are left. Several run side by side.
cordma::task<> send_pieces(cordma::runtime& rt, cordma::rpc::client& server, outgoing_file& file) {
  cordma::local_mr memory = rt.memory().allocate_uninitialized(piece_max);
  while (file.begun < file.size_bytes) {
    const std::uint64_t offset = file.begun;
    const auto part = memory.first(std::min<std::uint64_t>(piece_max, file.size_bytes - offset));
    const auto bytes = read_at(file.fd.get(), offset, part.bytes());
    if (bytes.size() < part.size_bytes())
      throw std::runtime_error{file.path + ": has become shorter"};
    file.sum.add(bytes);  // In order: there was no co_await since we saw what is next.
    file.begun += bytes.size();
    const cordma::rpc::call_options lent{.source = part};
    co_await server.call<piece>(offset, lent);
    file.sent += part.size_bytes();
    show_progress(file.sent, file.size_bytes);
  }
}

cordma::task<> client(cordma::runtime& rt, cordma::endpoint to, std::string path,
                      std::string name) {
  outgoing_file file{path};
  offer o{.size_bytes = file.size_bytes};
  if (name.size() > o.name.size()) throw std::length_error{name + ": longer than 256 bytes"};
  std::ranges::copy(name, o.name.begin());
  cordma::connection conn = co_await rt.connect(to);
  cordma::rpc::client server{std::move(conn), {.call_timeout = deadline}};

  const auto start = std::chrono::steady_clock::now();
  co_await server.call<begin>(o);
  co_await cordma::with_scope([&](cordma::scope& senders) -> cordma::task<> {
    for (unsigned i = 0; i < pieces_at_once; ++i) senders.spawn(send_pieces(rt, server, file));
    co_return;
  });
  file.check_unchanged();
  const std::chrono::seconds to_read{file.size_bytes / bytes_a_second};
  co_await server.call<end>(file.sum.value(), {.timeout = deadline + to_read});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("client: sent %ju bytes as '%s' in %.3f s, %.0f MB/s; both sides' checksum: %016jx\n",
              std::uintmax_t{file.size_bytes}, name.c_str(), took.count(),
              double(file.size_bytes) / took.count() / 1e6, std::uintmax_t{file.sum.value()});
  co_await server.close();
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "server") {
    cordma::runtime rt{{.device = argc > 2 ? argv[2] : ""}};
    cordma::listener listener = rt.listen();
    std::printf("listening on %s\n", listener.local_endpoint().to_string().c_str());
    rt.run(serve(listener, argc > 3 ? argv[3] : "."));
  } else if (role == "client" && argc > 4) {
    const std::string name =
        argc > 5 ? std::string{argv[5]} : std::filesystem::path{argv[4]}.filename().string();
    cordma::runtime rt{{.device = argv[3]}};
    rt.run(client(rt, cordma::endpoint::parse(argv[2]), argv[4], name));
  } else {
    std::fprintf(stderr,
                 "usage: %s server [DEVICE [FOLDER]] | client HOST:PORT DEVICE FILE [NAME]\n",
                 argv[0]);
    return 2;
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
