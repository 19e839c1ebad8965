#include "grant.hpp"

#include "lender.hpp"

namespace cordma::detail {

grant::grant(cordma::lender& l) noexcept
    : timer{&cordma::lender::on_timer},
      lender{&l},
      bound{l.context_.executor},
      ended{l.context_.executor} {}

}  // namespace cordma::detail
