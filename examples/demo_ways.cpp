#include "demo_ways.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <utility>

namespace demo {
namespace {

using namespace std::chrono_literals;

struct named {
  method by;
  const char* name;
};
constexpr std::array all{
    named{method::tcp, "tcp"},         named{method::unix_socket, "unix"},
    named{method::rdma_cm, "rdma_cm"}, named{method::raw, "raw"},
    named{method::psk, "psk"},         named{method::certificate, "certificate"}};

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  if (!file) throw std::runtime_error{path.string() + ": cannot be read"};
  return text;
}

/// The file gets its name when it is whole, so a reader never finds half of the text.
void publish(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path part = path.string() + ".part";
  std::ofstream file{part};
  file << text;
  file.close();
  if (!file) throw std::runtime_error{part.string() + ": cannot be written"};
  std::filesystem::rename(part, path);
}

cordma::task<std::string> published(std::filesystem::path path) {
  while (!std::filesystem::exists(path)) co_await cordma::sleep_for(1ms);
  co_return contents_of(path);
}

/// Returns an address by which rdma_cm finds the runtime's device. 127.0.0.1 leads to soft0 alone.
std::string device_address(cordma::runtime& rt) {
  if (rt.device_name() == "soft0") return "127.0.0.1";
  const auto port = rt.context().active_port();
  const auto gid = cordma::verbs::choose_gid(rt.context().gid_table(port.number),
                                             {.family = cordma::verbs::gid_request::ip::v4});
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, gid.gid.raw + 12, text.data(), text.size());
  return text.data();
}

cordma::endpoint endpoint_of(cordma::runtime& rt, method by, const std::filesystem::path& folder) {
  if (by == method::unix_socket) return "unix:" + (folder / "socket").string();
  if (by == method::rdma_cm) return "rdma_cm:" + device_address(rt) + ":0";
  return {};  // Loopback, a port that the kernel chooses.
}

}  // namespace

method method_of(std::string_view name) {
  const auto* const found = std::ranges::find(all, name, &named::name);
  if (found != all.end()) return found->by;
  std::string names;
  for (const named& each : all) names.append(names.empty() ? "" : ", ").append(each.name);
  throw std::invalid_argument{"no way '" + std::string{name} + "' to connect; there is: " + names};
}

const char* name_of(method by) { return std::ranges::find(all, by, &named::by)->name; }

std::optional<cordma::credentials> credentials_of(method by, const std::filesystem::path& folder,
                                                  const std::string& side) {
  if (by == method::psk) {
    const std::string secret = contents_of(folder / "key");
    const auto bytes = std::as_bytes(std::span{secret});
    return cordma::credentials::psk({"demo", {bytes.begin(), bytes.end()}});
  }
  if (by == method::certificate) {
    return cordma::credentials::certificates({.chain = folder / (side + ".pem"),
                                              .key = folder / (side + ".key"),
                                              .authorities = folder / "authority.pem"});
  }
  return std::nullopt;
}

meeting::meeting(cordma::runtime& rt, method by, std::filesystem::path folder)
    : rt_{rt}, by_{by}, folder_{std::move(folder)}, side_{"server"}, other_{"client"} {
  if (by_ == method::raw) {
    address_ = "texts in " + folder_.string();
    return;
  }
  // A real device has an address that other hosts reach, for as long as the demo runs.
  acceptor_ = rt_.listen(endpoint_of(rt_, by_, folder_), {}, {.insecure = by_ == method::rdma_cm});
  address_ = acceptor_->local_endpoint().to_string();
}

meeting::meeting(cordma::runtime& rt, method by, std::filesystem::path folder, std::string address)
    : rt_{rt},
      by_{by},
      folder_{std::move(folder)},
      side_{"client"},
      other_{"server"},
      address_{std::move(address)} {}

cordma::task<cordma::connection> meeting::next() {
  if (by_ == method::raw) return exchange_texts(std::string{"-"}.append(std::to_string(met_++)));
  if (acceptor_) return acceptor_->accept();
  return rt_.connect(cordma::endpoint::parse(address_));
}

cordma::task<cordma::connection> meeting::exchange_texts(std::string number) {
  cordma::prepared_connection mine = rt_.prepare_connection();
  publish(folder_ / (side_ + number), mine.info());
  const std::string theirs = co_await cordma::with_timeout(published(folder_ / (other_ + number)),
                                                           cordma::prepared_connection::lifetime);
  co_return co_await mine.connect(theirs);
}

}  // namespace demo
