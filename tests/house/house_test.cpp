// The checks of the house over this tree. That they find anything at all is shown by the tests beside this one.
#include <gtest/gtest.h>

#include "tests/house/include_graph.h"
#include "tests/house/parameters.h"
#include "tests/house/sizes.h"
#include "tests/house/words.h"

namespace sluice::house {
namespace {

SourceTree this_tree() { return read_tree(SLUICE_SOURCE_FOLDER); }

TEST(House, is_read_whole) {
  const SourceTree tree = this_tree();
  size_t headers = 0, sources = 0, own = 0;
  for (const SourceFile& file : tree) {
    headers += file.path.ends_with(".h") ? 1 : 0;
    sources += file.path.ends_with(".cpp") ? 1 : 0;
    own += file.path == "tests/house/house_test.cpp" || file.path == "core/arena.h" ? 1 : 0;
    EXPECT_FALSE(file.path.starts_with("build/")) << file.path;
    EXPECT_FALSE(file.path.starts_with(".venv/")) << file.path;
  }
  EXPECT_EQ(own, 2u);
  EXPECT_GT(headers, 20u);
  EXPECT_GT(sources, 20u);
}

TEST(House, includes_go_downwards_and_libraries_keep_to_their_places) {
  EXPECT_EQ(report(check_includes(this_tree())), "");
}

TEST(House, links_exactly_the_edges_of_the_graph) { EXPECT_EQ(report(check_links(this_tree())), ""); }

TEST(House, files_and_functions_stay_small) { EXPECT_EQ(report(check_sizes(this_tree())), ""); }

TEST(House, functions_take_few_parameters_and_no_bools) { EXPECT_EQ(report(check_parameters(this_tree())), ""); }

TEST(House, what_others_take_alone_names_no_option_of_the_command) {
  EXPECT_EQ(report(check_option_names(this_tree())), "");
}

TEST(House, leaves_no_marks_of_unfinished_work) { EXPECT_EQ(report(check_words(this_tree())), ""); }

}  // namespace
}  // namespace sluice::house
