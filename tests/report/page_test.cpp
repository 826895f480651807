// Both forms of a page.

#include "report/page.hpp"

#include "core/error.hpp"
#include "report/report_text.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

Page small_page() {
  return {Heading{1, "A & B"}, Line{"all <well>", Tone::good}, Line{"a|b", Tone::bad},
          Table{{"name", "value"}, {{"x|y", Cell("1", Tone::bad)}, {"", "2"}}},
          Figure{"plot", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n", "what it shows"}};
}

} // namespace

TEST_CASE("Markdown has tables, bold words and figures as files", "[report][page]") {
  CHECK(page_markdown(small_page()) == "# A \\& B\n\n**all \\<well\\>**\n\n**a\\|b**\n\n| name | value |\n|---|---|\n"
                                       "| x\\|y | **1** |\n|  | 2 |\n\n![what it shows](plot.svg)\n\n");
}

TEST_CASE("the HTML page has figures, style and title in it, and refers to nothing", "[report][page]") {
  std::string const html = page_html(small_page());
  CHECK_THAT(html, StartsWith("<!DOCTYPE html>\n"));
  CHECK_THAT(html, ContainsSubstring("<title>A &amp; B</title>"));
  CHECK_THAT(html, ContainsSubstring("<p class=\"good\">all &lt;well&gt;</p>"));
  CHECK_THAT(html, ContainsSubstring("<td>x|y</td><td class=\"bad\">1</td>"));
  CHECK_THAT(html, ContainsSubstring("<figure>\n<svg "));
  for (std::string const word : {"<script", "href", "src=", "url(", "@import"})
    CHECK_THAT(html, !ContainsSubstring(word));
  CHECK_THROWS_AS(page_html({Line{"no heading"}}), Error);
}

TEST_CASE("names of any characters stay text in both forms", "[report][page]") {
  std::string const hostile = "a]![b](c) &amp; _d_ *e* |f| `g` <h> ~~i~~ $j$ \\k #\r\nl\t\"m\" 'n'";
  Page const page{Heading{2, hostile}, Line{hostile, Tone::bad}, Table{{hostile}, {{Cell(hostile)}}},
                  Figure{"plot", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n", hostile}};
  std::string const escaped_text = "a\\]\\!\\[b\\](c) \\&amp; \\_d\\_ \\*e\\* \\|f\\| \\`g\\` \\<h\\> "
                                   "\\~\\~i\\~\\~ \\$j\\$ \\\\k \\#  l \"m\" 'n'";
  CHECK(page_markdown(page) == "## " + escaped_text + "\n\n**" + escaped_text + "**\n\n| " + escaped_text +
                                   " |\n|---|\n| " + escaped_text + " |\n\n![" + escaped_text + "](plot.svg)\n\n");
  std::string const entities =
      "a]![b](c) &amp;amp; _d_ *e* |f| `g` &lt;h&gt; ~~i~~ $j$ \\k #?\nl\t&quot;m&quot; &#39;n&#39;";
  std::string const html = page_html(page);
  for (std::string const& words :
       {"<title>" + entities + "</title>", "<h2>" + entities + "</h2>", "<p class=\"bad\">" + entities + "</p>",
        "<th>" + entities + "</th>", "<td>" + entities + "</td>", "<figcaption>" + entities + "</figcaption>"})
    CHECK_THAT(html, ContainsSubstring(words));
}

TEST_CASE("figures are named by letters that every system has in names, and not by too many", "[report][page]") {
  CHECK(file_name_of("A_b.c/../D|9") == "a-b-c----d-9");
  CHECK(file_name_of("\xc3\xa4") == "--");
  CHECK(file_name_of(std::string(300, 'x')).size() == 100);
}

TEST_CASE("a table without names of columns has no head in HTML", "[report][page]") {
  std::string const html = page_html({Heading{1, "t"}, Table{{"", ""}, {{"a", "b"}}}});
  CHECK_THAT(html, !ContainsSubstring("<th>"));
}

TEST_CASE("a listing keeps its lines, and nothing in it is markup", "[report][page]") {
  Page const page{Heading{1, "t"}, Listing{"a & _b_", "1  <i>\n````\r\n``` 2\n"}};
  CHECK_THAT(page_markdown(page), ContainsSubstring("a \\& \\_b\\_:\n\n`````text\n1  <i>\n```` \n``` 2\n`````\n\n"));
  CHECK_THAT(page_html(page), ContainsSubstring("<details>\n<summary>a &amp; _b_</summary>\n<pre class=\"scroll\">"
                                                "1  &lt;i&gt;\n````?\n``` 2\n</pre>\n</details>\n"));
}
