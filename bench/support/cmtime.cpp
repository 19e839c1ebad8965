#include "cmtime.hpp"

#include <cordma/verbs/gid.hpp>

#include <arpa/inet.h>
#include <link.h>

#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string_view>

namespace bench {
namespace {

/// Returns the libraries that give soft0 and its rdma_cm to this process; none elsewhere.
std::string softverbs() {
  std::string paths;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        const std::string_view name{info->dlpi_name};
        auto& all = *static_cast<std::string*>(to);
        if (name.find("libsoftverbs") != name.npos) all.append(all.empty() ? "" : " ").append(name);
        return 0;
      },
      &paths);
  return paths;
}

}  // namespace

std::string cm_address(const cordma::verbs::context& ctx) {
  if (ctx.name() == "soft0") return "127.0.0.1";
  const auto gid = cordma::verbs::choose_gid(ctx.gid_table(ctx.active_port().number),
                                             {.family = cordma::verbs::gid_request::ip::v4});
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, gid.gid.raw + 12, text.data(), text.size());
  return text.data();
}

double run_cmtime(const std::string& address, unsigned connections) {
  const std::string preloaded = address == "127.0.0.1" ? " '" + softverbs() + "'" : "";
  const std::string command = std::string{BENCH_FOLDER "/support/cmtime "} + address + " " +
                              std::to_string(connections) + preloaded;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe{::popen(command.c_str(), "r"), &::pclose};
  double us = 0;
  if (pipe == nullptr || std::fscanf(pipe.get(), "%lf", &us) != 1) {
    throw std::runtime_error{"no figure from " + command};
  }
  return us;
}

}  // namespace bench
