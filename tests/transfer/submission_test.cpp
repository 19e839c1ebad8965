#include <cordma/transfer/submission.hpp>
