#pragma once

#include <cordma/verbs/device.hpp>

namespace cordma::verbs {

device_limits limits_of(const ibv_device_attr& attributes) noexcept;

}  // namespace cordma::verbs
