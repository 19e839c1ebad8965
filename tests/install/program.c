/* A program outside the tree, in C99. */

#include <cordma.h>
#include <stdio.h>

int main(void) {
  cordma_options options = CORDMA_OPTIONS;
  cordma_context context;
  options.device = "no_such_device";
  printf("cordma %s: %s\n", cordma_version(), cordma_status_text(cordma_init(&options, &context)));
  return 0;
}
