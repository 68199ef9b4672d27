#include "tests/house/parameters.h"

#include <algorithm>
#include <regex>
#include <sstream>

#include "tests/house/sizes.h"

namespace sluice::house {
namespace {

// How much deeper in brackets the text is behind this character. An arrow closes none.
int step_of(std::string_view text, size_t at) {
  const char c = text[at];
  if (c == '(' || c == '[' || c == '{' || c == '<') return 1;
  if (c == ')' || c == ']' || c == '}') return -1;
  return c == '>' && (at == 0 || text[at - 1] != '-') ? -1 : 0;
}

// Where the list opens: at the first parenthesis that is neither in a template's arguments nor an operator's name.
size_t opening_of(std::string_view head) {
  constexpr std::string_view kOperator = "operator";
  const size_t name = head.find(kOperator);
  if (name != std::string_view::npos) return head.find('(', name + kOperator.size() + 1);  // its symbol may be ()
  int depth = 0;
  for (size_t at = 0; at < head.size(); ++at) {
    if (depth == 0 && head[at] == '(') return at;
    depth += step_of(head, at);
  }
  return std::string_view::npos;
}

bool is_bool(const std::string& parameter) {
  static const std::regex kBool(R"((const )?bool( \w+)?( = .*)?)");
  return std::regex_match(parameter, kBool);
}

// A lambda's head in a line: what it captures, and its list.
std::vector<std::string> lambda_heads(const std::string& line) {
  static const std::regex kLambda(R"(\[[^\[\]]*\](\([^()]*\)) *(mutable|noexcept|->|\{))");
  std::vector<std::string> heads;
  for (std::sregex_iterator at(line.begin(), line.end(), kLambda), end; at != end; ++at) heads.push_back((*at)[1]);
  return heads;
}

void report_bools(const std::vector<std::string>& parameters, const Finding& at, std::vector<Finding>& findings) {
  for (const std::string& parameter : parameters) {
    if (!is_bool(parameter)) continue;
    findings.push_back({at.path, at.line, "a bool in place of an enum class: " + parameter});
  }
}

}  // namespace

std::vector<std::string> parameters_of(std::string_view head) {
  const size_t open = opening_of(head);
  if (open == std::string_view::npos) return {};
  std::vector<std::string> parameters(1);
  int depth = 0;
  for (size_t at = open + 1; at < head.size(); ++at) {
    depth += step_of(head, at);
    if (depth < 0) break;
    if (depth == 0 && head[at] == ',') {
      parameters.emplace_back();
    } else if (head[at] != ' ' || !parameters.back().empty()) {
      parameters.back() += head[at];
    }
  }
  if (parameters.back().empty()) parameters.pop_back();
  return parameters;
}

std::vector<Finding> check_parameters(const SourceTree& tree) {
  std::vector<Finding> findings;
  for (const SourceFile& file : tree) {
    if (!is_cpp(file.path)) continue;
    for (const Function& function : functions_of_cpp(file.text)) {
      const std::vector<std::string> parameters = parameters_of(function.head);
      if (parameters.size() > kMostParameters) {
        findings.push_back({file.path, function.first_line,
                            std::to_string(parameters.size()) + " parameters; 4 at the most: " + function.head});
      }
      report_bools(parameters, {file.path, function.first_line, {}}, findings);
    }
    std::istringstream lines(file.text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      for (const std::string& head : lambda_heads(line)) {
        const std::vector<std::string> parameters = parameters_of(head);
        if (std::ranges::count_if(parameters, is_bool) < 2) continue;  // one may be all that there is to tell
        report_bools(parameters, {file.path, number, {}}, findings);
      }
    }
  }
  return findings;
}

}  // namespace sluice::house
