#include "perftest.hpp"

#include <cordma/verbs/gid.hpp>

#include <link.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>

namespace bench {
namespace {

constexpr std::size_t runs = 3;

/// The library that gives soft0 to this process; empty when it has none.
std::string softverbs() {
  std::string path;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        const std::string_view name{info->dlpi_name};
        if (name.find("libsoftverbs") != name.npos) *static_cast<std::string*>(to) = name;
        return 0;
      },
      &path);
  return path;
}

}  // namespace

bool has_perftest(std::string_view device) { return device == "soft0" && !softverbs().empty(); }

double run_perftest(const cordma::verbs::context& ctx, const cordma::verbs::port_info& port,
                    const perftest_program& program) {
  const auto gid = cordma::verbs::choose_gid(ctx.gid_table(port.number)).index;
  const std::string command = std::string{BENCH_FOLDER "/support/perftest "} + softverbs() + " " +
                              program.name + " -d " + std::string{ctx.name()} + " -x " +
                              std::to_string(gid) + " " + program.options;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe{::popen(command.c_str(), "r"), &::pclose};
  double figure = 0;
  if (pipe == nullptr || std::fscanf(pipe.get(), "%lf", &figure) != 1) {
    throw std::runtime_error{"no figure from " + command};
  }
  return figure;
}

double perftest_latency_us(const cordma::verbs::context& ctx, const cordma::verbs::port_info& port,
                           const perftest_program& program) {
  std::array<double, runs> all{};
  for (double& one : all) one = run_perftest(ctx, port, program);
  std::ranges::sort(all);
  return all[runs / 2];
}

void beside_perftest(recorder& to, const cordma::verbs::context& ctx,
                     const cordma::verbs::port_info& port, std::string_view which, double ns,
                     const perftest_program& program) {
  if (!has_perftest(ctx.name())) return;
  const double theirs = 1000 * perftest_latency_us(ctx, port, program);
  to.count(std::string{which} + ", beside " + program.name, "latency p50", "ns", ns, theirs);
}

}  // namespace bench
