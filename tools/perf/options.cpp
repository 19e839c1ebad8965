#include "options.hpp"

#include "collective_arguments.hpp"
#include "compare.hpp"
#include "size.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace perf {
namespace {

/// The options as the user writes them.
struct texts {
  std::string op = "write", size, depth, mode, duration = "2", operations = "0", host;
  std::string memory = "2G";
  std::uint32_t connections = 0, threads = 1;
  std::uint16_t port = port_default;
};

void add_job_options(CLI::App& to, texts& t, options& o) {
  to.add_option("--op", t.op,
                "write (default), read, send, write-imm, cas, faa, atomic-write, rpc, stream, ud, "
                "multicast, xrc; over UC: uc-write, uc-send, uc-write-imm");
  to.add_option("--size", t.size, "Bytes, 8 to 1G, or a sweep as 8:64K; default 64");
  to.add_option("--depth", t.depth, "Operations at once on a connection, 1 to 1024, or a sweep");
  to.add_option("--connections", t.connections, "In all; default one a thread");
  to.add_option("--threads", t.threads, "On each side, each with a runtime of its own; default 1");
  to.add_option("--mode", t.mode, "event (default), busy or adaptive");
  to.add_option("--duration", t.duration, "Seconds of each line; default 2");
  to.add_option("--operations", t.operations, "As many instead, whatever time they take");
  to.add_option("--device", o.device, "Default: the first that is active, else soft0");
  to.add_option("--json", o.json_file, "Write the results to this file, too");
  to.add_option("--plot", o.plot_file, "Draw latency against load: depths 1 to --depth (64)");
}

std::uint32_t narrow(const char* name, std::uint64_t value, std::uint32_t most) {
  if (value <= most) return std::uint32_t(value);
  throw std::invalid_argument{std::string{name} + ' ' + size_text(value) + ": it goes up to " +
                              size_text(most)};
}

/// A plot needs several loads.
std::string depth_text(const texts& t, const options& o) {
  if (o.plot_file.empty()) return t.depth.empty() ? "1" : t.depth;
  if (t.depth.empty()) return "1:64";
  return t.depth.find(':') == std::string::npos ? "1:" + t.depth : t.depth;
}

void make_jobs(const texts& t, options& o) {
  job j{.op = parse_operation(t.op),
        .connections = t.connections != 0 ? t.connections : t.threads,
        .threads = t.threads,
        .operations = parse_size("--operations", t.operations),
        .duration = parse_seconds(t.duration)};
  const std::string mode = t.mode.empty() ? (o.has_baseline ? "busy" : "event") : t.mode;
  j.mode = parse_mode(mode);
  const std::string size = t.size.empty() ? (is_atomic(j.op) ? "8" : "64") : t.size;
  const auto depths = parse_sweep("--depth", depth_text(t, o));
  for (const std::uint64_t size_bytes : parse_sweep("--size", size)) {
    for (const std::uint64_t depth : depths) {
      j.size_bytes = size_bytes;
      j.depth = narrow("--depth", depth, job::depth_max);
      check(j);
      if (o.has_baseline) check_comparable(j);
      o.jobs.push_back(j);
    }
  }
}

/// HOST or HOST:PORT; of a bare IPv6 address the colons are its own.
cordma::endpoint parse_server(const std::string& text, std::uint16_t port) {
  const auto colons = std::ranges::count(text, ':');
  if (colons == 1 || text.starts_with('[')) return cordma::endpoint::parse(text);
  return {text, port};
}

/// `--local` is another name of `local`, and `--collectives` of `collectives`.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> all(argv + 1, argv + argc);
  for (const std::string name : {"--local", "--collectives"}) {
    const auto flag = std::ranges::find(all, name);
    if (flag == all.end()) continue;
    all.erase(flag);
    all.insert(all.begin(), name.substr(2));
  }
  std::ranges::reverse(all);  // CLI11 wants the last argument first.
  return all;
}

}  // namespace

options parse_options(int argc, char** argv) {
  options o;
  texts t;
  CLI::App app{"Measures cordma: throughput, latency and what an operation costs", "cordma-perf"};
  CLI::App* const server = app.add_subcommand("server", "Serve clients until it is killed");
  server->add_option("--device", o.server.device, "Default: the first that is active, else soft0");
  server->add_option("--host", o.server.host, "Listen here; default 127.0.0.1, 0.0.0.0 is all");
  server->add_option("--port", t.port, "Default 7471; 0: any, it is printed");
  server->add_option("--data-port", o.server.data_port, "Of measured connections; default any");
  server->add_option("--memory", t.memory, "That a client's job may take here; default 2G");
  server->add_option("--threads", o.server.threads_max, "That a job may take; default: CPUs");
  CLI::App* const client = app.add_subcommand("client", "Measure with a server");
  client->add_option("HOST", t.host, "HOST or HOST:PORT")->required();
  client->add_option("--port", t.port, "The server's; default 7471");
  add_job_options(*client, t, o);
  CLI::App* const local = app.add_subcommand("local", "Both ends here; or --local");
  local->add_option("--memory", t.memory, "That a job may take on each side; default 2G");
  local->add_flag("--baseline", o.has_baseline, "By turns with a raw verbs loop, in one process");
  add_job_options(*local, t, o);
  collective_arguments collectives{app};
  try {
    app.parse(arguments_of(argc, argv));
  } catch (const CLI::CallForHelp&) {
    o.help = app.help("", CLI::AppFormatMode::All);
    return o;
  } catch (const CLI::ParseError& e) {
    throw std::invalid_argument{std::string{e.what()} + " (--help lists the options)"};
  }
  if (app.get_subcommands().size() != 1) {
    throw std::invalid_argument{
        "say server, client HOST, --local or --collectives (--help lists the options)"};
  }
  if (collectives.is_parsed()) {
    o.role = role::collectives;
    o.collectives = collectives.read();
    return o;
  }
  o.server.memory_bytes_max = parse_size("--memory", t.memory);
  o.server.port = t.port;
  if (server->parsed()) {
    o.role = role::server;
    return o;
  }
  make_jobs(t, o);
  o.role = client->parsed() ? role::client : role::local;
  if (client->parsed()) o.to = parse_server(t.host, t.port);
  return o;
}

}  // namespace perf
