#pragma once

#include <cordma/io/executor.hpp>

#include <memory>

namespace cordma {

/// Makes the reactor that the options, else the environment, name. \errors see `executor`.
std::unique_ptr<reactor> make_reactor(const executor_options& options);

}  // namespace cordma
