#include "options.hpp"

#include "frames.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <stdexcept>

namespace doctor {
namespace {

constexpr const char* about =
    "Says whether this machine is ready for RDMA with cordma, tries it, and names what mends it.\n"
    "Exit status: 0 unless an error was found, 1 if one was, 2 for wrong arguments.";

/// HOST, HOST:PORT, or what `endpoint::parse` reads; of a bare IPv6 address the colons are its own.
cordma::endpoint parse_peer(const std::string& text, std::uint16_t port) {
  const auto colons = std::ranges::count(text, ':');
  const bool has_more = colons == 1 || text.starts_with('[') || text.starts_with("unix:") ||
                        text.starts_with("rdma_cm:");
  return has_more ? cordma::endpoint::parse(text) : cordma::endpoint{text, port};
}

}  // namespace

options parse_options(int argc, char** argv) {
  options o;
  std::string peer;
  std::string host = "127.0.0.1";
  std::uint16_t port = port_default;
  bool serves = false;
  CLI::App app{about, "cordma-doctor"};
  app.add_option("HOST", peer, "HOST or HOST:PORT of a cordma-doctor --serve: tries the network");
  app.add_flag("--serve", serves, "Be the peer of a cordma-doctor elsewhere, until it is killed");
  app.add_option("--host", host, "With --serve: listen here; default 127.0.0.1, 0.0.0.0 is all");
  app.add_option("--port", port, "Of --serve, or of HOST; default 7472; 0: any, it is printed");
  app.add_option("--device", o.names.device, "Default: the first that is active, else soft0");
  app.add_option("--gid-index", o.names.gid_index, "Row of the GID table; default: the best")
      ->check(CLI::Range(0, 255));
  app.add_flag("--json", o.is_json, "Print one JSON object instead of text");
  app.add_flag("--verbose", o.is_verbose, "Say why a value matters that is as it should be, too");
  app.add_flag("--read-only", o.only_reads, "Read what there is, and try nothing");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    o.help = app.help();
    o.role = role::help;
    return o;
  } catch (const CLI::ParseError& e) {
    throw std::invalid_argument{std::string{e.what()} + " (--help lists the options)"};
  }
  if (serves && !peer.empty()) throw std::invalid_argument{"say HOST or --serve, not both"};
  if (o.only_reads && !peer.empty())
    throw std::invalid_argument{"--read-only tries nothing with a HOST: leave one of them out"};
  try {
    if (!peer.empty()) o.peer = parse_peer(peer, port);
  } catch (const std::exception& e) {
    throw std::invalid_argument{e.what()};
  }
  o.local = {host, port};
  o.role = serves ? role::serve : peer.empty() ? role::here : role::peer;
  return o;
}

}  // namespace doctor
