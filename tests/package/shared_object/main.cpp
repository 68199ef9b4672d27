#include <cstdio>

int threads_and_stores(const char* folder);

int main(int, char** argv) {
  if (threads_and_stores(argv[1]) != 1) return 1;
  std::puts("the shared object updates and stores");
}
