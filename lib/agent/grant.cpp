#include "grant.hpp"

#include "lender.hpp"

namespace cordma::detail {

grant::grant(lender& l) noexcept
    : timer{&lender::on_timer}, home{&l}, bound{l.context_.home}, ended{l.context_.home} {}

}  // namespace cordma::detail
