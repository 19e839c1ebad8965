#pragma once

#include <cordma/cordma.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

// How the two processes of the demo find each other: each way of docs/connecting.md.
namespace demo {

enum class method { tcp, unix_socket, rdma_cm, raw, psk, certificate };

/// \errors std::invalid_argument, which lists the names.
method method_of(std::string_view name);
const char* name_of(method by);

/// Returns what a side, "server" or "client", shows its peer: a key or a certificate from `folder`,
/// into which `examples/demo` has put it. Other ways show nothing.
std::optional<cordma::credentials> credentials_of(method by, const std::filesystem::path& folder,
                                                  const std::string& side);

/// Gives one side its connections, one after the other. The other side meets it as often.
class meeting {
 public:
  /// The server's side, which listens.
  meeting(cordma::runtime& rt, method by, std::filesystem::path folder);
  /// The client's side; `address` is what the server's side gave.
  meeting(cordma::runtime& rt, method by, std::filesystem::path folder, std::string address);

  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  cordma::task<cordma::connection> next();

 private:
  cordma::task<cordma::connection> exchange_texts(std::string number);

  cordma::runtime& rt_;
  const method by_;
  const std::filesystem::path folder_;
  const std::string side_, other_;
  std::string address_;
  std::optional<cordma::listener> acceptor_;  ///< The server's.
  unsigned met_ = 0;
};

}  // namespace demo
