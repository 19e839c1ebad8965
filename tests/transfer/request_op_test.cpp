#include <cordma/transfer/request_op.hpp>
