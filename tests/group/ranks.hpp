#pragma once

#include "support/connected_pair.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/group/group.hpp>
#include <cordma/group/joining.hpp>
#include <cordma/runtime/runtime.hpp>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cordma::test {

/// Fails the test that runs a rank's task.
inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error{what};
}

/// The ranks of a group, each with links of its own to the others, on one runtime and thread.
class ranks {
 public:
  /// \param per_host  ranks that share a host, in order; 0: all do.
  explicit ranks(unsigned size, const group_options& options = {}, unsigned per_host = 0,
                 runtime_options of_runtime = {})
      : rt_{on_test_device(std::move(of_runtime))}, all_(size) {
    const std::vector<meeting> meetings = meeting::in_process(size);
    rt_.run(with_scope([&](scope& joining) -> task<> {
      for (unsigned r = 0; r < size; ++r) {
        joining.spawn([&, r]() -> task<> {
          group_options own = options;
          if (per_host != 0) own.host = 1 + r / per_host;
          all_[r] = co_await group::join(rt_, meetings[r], own);
        });
      }
      co_return;
    }));
  }
  ranks(const ranks&) = delete;
  ~ranks() { all_.clear(); }

  [[nodiscard]] runtime& rt() noexcept { return rt_; }
  [[nodiscard]] unsigned size() const noexcept { return unsigned(all_.size()); }
  [[nodiscard]] group& operator[](unsigned r) noexcept { return all_[r]; }

  /// Runs a task of each rank, side by side. Returns the failures: none if the text is empty. The
  /// first failure stops the other ranks.
  template <class Body>
  [[nodiscard]] std::string run(Body body) {
    std::string wrong;
    rt_.run(with_scope([&](scope& running) -> task<> {
      for (unsigned r = 0; r < size(); ++r) {
        running.spawn([&, r]() -> task<> {
          try {
            co_await body(all_[r]);
          } catch (const cancelled&) {
            // Another rank has failed.
          } catch (const std::exception& e) {
            wrong += "rank " + std::to_string(r) + ": " + e.what() + "\n";
            running.request_stop();
          }
        });
      }
      co_return;
    }));
    return wrong;
  }
  /// Runs a task of each rank, and gives their outcomes.
  template <class Body>
  std::vector<result<void>> outcomes(Body body) {
    std::vector<result<void>> all(all_.size());
    rt_.run(with_scope([&](scope& running) -> task<> {
      for (unsigned r = 0; r < size(); ++r)
        running.spawn([&, r]() -> task<> { all[r] = co_await as_result(body(all_[r])); });
      co_return;
    }));
    return all;
  }

 private:
  runtime rt_;
  std::vector<group> all_;
};

}  // namespace cordma::test
