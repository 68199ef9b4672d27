#include "tests/house/sizes.h"

#include <algorithm>
#include <cctype>
#include <regex>

namespace sluice::house {
namespace {

// Blanks text[from, to) except line breaks.
void blank(std::string& text, size_t from, size_t to) {
  for (size_t i = from; i < std::min(to, text.size()); ++i) {
    if (text[i] != '\n') text[i] = ' ';
  }
}

size_t end_of_line(std::string_view text, size_t at) { return std::min(text.find('\n', at), text.size()); }

// One past a preprocessor directive, continued lines included.
size_t end_of_directive(std::string_view text, size_t at) {
  size_t end = end_of_line(text, at);
  while (end < text.size() && end > at && text[end - 1] == '\\') end = end_of_line(text, end + 1);
  return end;
}

// One past a literal in the given quotes.
size_t end_of_literal(std::string_view text, size_t at) {
  const char quote = text[at];
  for (++at; at < text.size() && text[at] != quote; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

// One past R"delimiter( … )delimiter"; `at` is at the R.
size_t end_of_raw_literal(std::string_view text, size_t at) {
  const size_t open = text.find('(', at);
  if (open == std::string_view::npos) return text.size();
  const std::string close = ")" + std::string(text.substr(at + 2, open - at - 2)) + "\"";
  const size_t end = text.find(close, open);
  return end == std::string_view::npos ? text.size() : end + close.size();
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// One past what starts at `at` and is no code; `at` itself if it is code.
enum class InLine : uint8_t { kFirst, kLater };
size_t end_of_no_code(std::string_view text, size_t at, InLine where) {
  const char c = text[at], next = at + 1 < text.size() ? text[at + 1] : '\0';
  const bool in_word = at > 0 && is_word(text[at - 1]);
  if (c == '/' && next == '/') return end_of_line(text, at);
  if (c == '/' && next == '*') return std::min(text.find("*/", at + 2), text.size() - 2) + 2;
  if (c == '#' && where == InLine::kFirst) return end_of_directive(text, at);
  if (c == 'R' && next == '"' && !in_word) return end_of_raw_literal(text, at);
  if (c == '"') return end_of_literal(text, at);
  if (c == '\'' && !in_word) return end_of_literal(text, at);  // within a word it separates digits
  return at;
}

std::string squeezed(const std::string& text) {
  const std::string one_line = std::regex_replace(text, std::regex(R"(\s+)"), " ");
  const size_t first = one_line.find_first_not_of(' ');
  return first == std::string::npos ? "" : one_line.substr(first, one_line.find_last_not_of(' ') - first + 1);
}

enum class Block { kScope, kFunction, kOther };

// What a brace opens, from the text since the last statement. (A function that returns a `struct tm` is not written
// here.)
Block block_of(const std::string& head) {
  static const std::regex kScope(R"((template ?<.*> ?)?(inline )?(namespace|class|struct|union|enum)\b.*|extern)");
  if (std::regex_match(head, kScope)) return Block::kScope;
  return head.find('(') < head.find(" = ") ? Block::kFunction : Block::kOther;
}

class FunctionScan {
 public:
  explicit FunctionScan(std::string code) : code_(std::move(code)) {}

  std::vector<Function> run() {
    for (at_ = 0; at_ < code_.size(); ++at_) {
      const char c = code_[at_];
      if (c == '\n') ++line_;
      if (c == '{') {
        open();
      } else if (c == '}') {
        close();
      } else if (deep_ == 0) {
        take(c);
      }
    }
    return functions_;
  }

 private:
  void take(char c) {
    if (head_.empty() && std::isspace(static_cast<unsigned char>(c)) != 0) return;
    if (head_.empty()) head_line_ = line_;
    head_ += c;
    static const std::regex kAccess(R"((public|private|protected)\s*:$)");
    if (c == ';' || (c == ':' && std::regex_search(head_, kAccess))) head_.clear();
  }

  void open() {
    if (deep_ > 0) {
      ++deep_;
      return;
    }
    const Block block = block_of(squeezed(head_));
    if (block == Block::kScope) {
      head_.clear();
      return;
    }
    opened_ = block;
    deep_ = 1;
  }

  void close() {
    if (deep_ == 0 || --deep_ > 0) return;
    // `: a_{1}, b_{2} {` opens several braces, all of one constructor.
    const size_t next = code_.find_first_not_of(" \n", at_ + 1);
    const bool goes_on = next != std::string::npos && (code_[next] == ',' || code_[next] == '{');
    if (opened_ == Block::kFunction && !goes_on) {
      functions_.push_back({squeezed(head_), head_line_, line_ - head_line_ + 1});
    }
    if (!goes_on) head_.clear();
  }

  std::string code_;
  size_t at_ = 0;
  int line_ = 1;
  int deep_ = 0;  // braces open inside the body of a function or an initializer
  Block opened_ = Block::kOther;
  std::string head_;
  int head_line_ = 0;
  std::vector<Function> functions_;
};

size_t indentation_of(const std::string& line) { return std::min(line.find_first_not_of(" \t"), line.size()); }

}  // namespace

std::string code_of_cpp(std::string_view text) {
  std::string code(text);
  InLine where = InLine::kFirst;
  for (size_t at = 0; at < code.size();) {
    const size_t end = end_of_no_code(text, at, where);
    if (end > at) {
      blank(code, at, end);
      at = end;
      continue;
    }
    if (text[at] == '\n') {
      where = InLine::kFirst;
    } else if (text[at] != ' ') {
      where = InLine::kLater;
    }
    ++at;
  }
  return code;
}

std::vector<Function> functions_of_cpp(std::string_view text) { return FunctionScan(code_of_cpp(text)).run(); }

std::vector<Function> functions_of_python(std::string_view text) {
  static const std::regex kDefinition(R"(\s*(async )?def \w+.*)");
  const std::vector<std::string> lines = lines_of(text);
  std::vector<Function> functions;
  for (size_t first = 0; first < lines.size(); ++first) {
    if (!std::regex_match(lines[first], kDefinition)) continue;
    size_t last = first;
    for (size_t i = first + 1; i < lines.size(); ++i) {
      if (indentation_of(lines[i]) == lines[i].size()) continue;
      // The closing parenthesis of a long parameter list stands where the def does.
      if (indentation_of(lines[i]) <= indentation_of(lines[first]) && lines[i][indentation_of(lines[i])] != ')') break;
      last = i;
    }
    functions.push_back({squeezed(lines[first]), static_cast<int>(first) + 1, static_cast<int>(last - first) + 1});
  }
  return functions;
}

std::vector<Finding> check_sizes(const SourceTree& tree) {
  std::vector<Finding> findings;
  for (const SourceFile& file : tree) {
    const auto lines = static_cast<int>(lines_of(file.text).size());
    if (lines > kMostLinesOfAFile) {
      findings.push_back({file.path, 0, std::to_string(lines) + " lines; 500 at the most"});
    }
    std::vector<Function> functions;
    if (is_cpp(file.path)) functions = functions_of_cpp(file.text);
    if (file.path.ends_with(".py")) functions = functions_of_python(file.text);
    for (const Function& function : functions) {
      if (function.lines <= kMostLinesOfAFunction) continue;
      const std::string size = std::to_string(function.lines) + " lines; 70 at the most: ";
      findings.push_back({file.path, function.first_line, size + function.head});
    }
  }
  return findings;
}

}  // namespace sluice::house
