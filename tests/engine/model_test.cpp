// What a model must be, and the text by which a store knows it.
#include "engine/model.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/errors.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {
namespace {

// Three visits in a chain, a tensor between each two, a partition for each.
ModelSpec chain() {
  return {.partitions = {{"p0", {{"a.weight", {1, 2}}, {"a.bias", {2}}}}, {"p1", {{"b", {12}}}}, {"p2", {{"c", {3}}}}},
          .tensors = {{"x0", 8}, {"x1", 8}},
          .visits = {{"first", {0}, {}, {0}}, {"middle", {1}, {0}, {1}}, {"last", {2}, {1}, {}}}};
}

std::string refusal_of(const std::function<void(ModelSpec&)>& change) {
  ModelSpec model = chain();
  change(model);
  return message_of<ConfigError>([&] { model.validate(); });
}

TEST(Model, may_share_partitions_and_tensors_and_give_a_tensor_again_until_it_is_taken) {
  EXPECT_NO_THROW(chain().validate());
  ModelSpec model = chain();
  model.visits[2].partitions = {2, 0};
  model.visits[2].takes = {1, 0};
  EXPECT_NO_THROW(model.validate());

  model = chain();
  model.visits.insert(model.visits.begin() + 1, {"first again", {}, {}, {0}});
  EXPECT_NO_THROW(model.validate());
}

TEST(Model, names_the_visit_whose_partition_or_tensor_is_not_there) {
  EXPECT_EQ(refusal_of([](ModelSpec& m) {
              m.visits[1].partitions = {1, 3};
            }),
            "model: visit middle names partition 3, the model has 3");
  EXPECT_EQ(refusal_of([](ModelSpec& m) { m.visits[2].partitions = {-1}; }),
            "model: visit last names partition -1, the model has 3");
  EXPECT_EQ(refusal_of([](ModelSpec& m) { m.visits[2].takes = {2}; }),
            "model: visit last names tensor 2, the model has 2");
  EXPECT_EQ(refusal_of([](ModelSpec& m) {
              m.visits[0].gives = {0, 2};
            }),
            "model: visit first names tensor 2, the model has 2");
}

TEST(Model, names_the_visit_that_has_something_twice) {
  EXPECT_EQ(refusal_of([](ModelSpec& m) {
              m.visits[1].partitions = {1, 0, 1};
            }),
            "model: visit middle names partition 1 twice");
  EXPECT_EQ(refusal_of([](ModelSpec& m) { m.visits[2].takes = {1, 0, 1}; }), "model: visit last names tensor 1 twice");
  EXPECT_EQ(refusal_of([](ModelSpec& m) { m.visits[0].gives = {0, 0}; }), "model: visit first names tensor 0 twice");
}

TEST(Model, names_the_visit_that_takes_a_tensor_too_early_or_gives_it_too_late) {
  EXPECT_EQ(refusal_of([](ModelSpec& m) { m.visits[0].takes = {1}; }),
            "model: visit first takes tensor x1 before any visit gives it");
  EXPECT_EQ(refusal_of([](ModelSpec& m) {
              m.visits[1].gives = {1, 0};
            }),
            "model: visit middle gives tensor x0 after it was taken");
}

TEST(Model, has_its_only_sink_at_its_end) {
  EXPECT_EQ(refusal_of([](ModelSpec& m) { m.visits.clear(); }), "model: no visits");
  EXPECT_EQ(refusal_of([](ModelSpec& m) {
              m.visits.insert(m.visits.begin() + 1, {"look", {}, {0}, {}});
            }),
            "model: visit look gives nothing and is not the last");
  EXPECT_EQ(refusal_of([](ModelSpec& m) {
              m.tensors.push_back({"x2", 8});
              m.visits[2].gives = {2};
            }),
            "model: the last visit, last, gives a tensor that nobody takes");
}

TEST(Model, names_what_nobody_uses_and_what_is_empty) {
  EXPECT_EQ(refusal_of([](ModelSpec& m) { m.visits[1].takes = {}; }), "model: nobody takes tensor x0");
  EXPECT_EQ(refusal_of([](ModelSpec& m) { m.tensors.push_back({"x2", 8}); }), "model: nobody takes tensor x2");
  EXPECT_EQ(refusal_of([](ModelSpec& m) { m.tensors[1].elements = 0; }), "model: tensor x1 has no elements");
  EXPECT_EQ(refusal_of([](ModelSpec& m) { m.visits[1].partitions = {}; }), "model: no visit uses partition p1");
}

TEST(Model, has_a_text_that_tells_partitions_names_and_every_dimension_apart) {
  EXPECT_EQ(chain().canonical_text(), "p0: a.weight[1,2] a.bias[2]\np1: b[12]\np2: c[3]\n");
  EXPECT_EQ(chain().elements(), 2 + 2 + 12 + 3);
}

}  // namespace
}  // namespace sluice::testing
