#include "app/report_style.h"

namespace sluice {

const std::string_view kReportStyle = R"(
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#1b1f24;--quiet:#626b76;--rule:#dde1e6;--track:#eef0f3;
--accent:#2563c9;--bound:#c2410c;--forward:#7fb2ea;--backward:#2563c9;--state:#e0912f;--weights:#159a8c;
--gradient:#9257c2;--activations:#8a8f98;--update:#4d9a2a;--checksum:#a3c979;--control:#c2410c}
@media (prefers-color-scheme:dark){:root{--page:#14171b;--card:#1d2126;--ink:#e7eaee;--quiet:#9aa4b0;--rule:#343b44;
--track:#272c33;--accent:#6ea8ff;--bound:#ff8a4c;--forward:#456f9e;--backward:#6ea8ff;--state:#eda94f;--weights:#3cc2b2;
--gradient:#b98be0;--activations:#8b949e;--update:#7cc455;--checksum:#5b7d40;--control:#ff8a4c}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1080px;margin:0 auto;padding:28px 20px 48px}
h1{font-size:26px;margin:0;overflow-wrap:anywhere}h2{font-size:16px;margin:0 0 12px}
p{margin:0 0 10px}.quiet{color:var(--quiet);font-size:13px;overflow-wrap:anywhere}
.verdict{font-size:16px;max-width:78ch}
section{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:16px 18px;margin-top:16px;min-width:0;overflow-x:auto}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(340px,100%),1fr));gap:0 16px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin-top:14px}
.tile{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:12px 14px}
.tile span,.tile small{display:block;color:var(--quiet);font-size:12.5px}.tile b{display:block;font-size:20px}
svg{display:block;width:100%;height:auto}
.axis{fill:var(--quiet);font-size:11px}.lane{fill:var(--ink);font-size:12px}
.grid{stroke:var(--rule);stroke-width:1}.track{fill:var(--track)}
.line{fill:none;stroke:var(--accent);stroke-width:1.6;stroke-linejoin:round}.dot{fill:var(--accent)}
.hop{stroke:none}.hop:hover{stroke:var(--ink);stroke-width:1}
.forward{fill:var(--forward)}.backward{fill:var(--backward)}.state{fill:var(--state)}.weights{fill:var(--weights)}
.gradient{fill:var(--gradient)}.activations{fill:var(--activations)}.update{fill:var(--update)}.checksum{fill:var(--checksum)}
.control{fill:var(--control)}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin-bottom:10px;font-size:13px;color:var(--quiet)}
.legend span{display:inline-flex;align-items:center;gap:6px}.legend svg{width:12px;height:12px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:6px 10px 6px 0;text-align:right;border-bottom:1px solid var(--rule);font-weight:400;white-space:nowrap}
tr:last-child th,tr:last-child td{border-bottom:0}
tr:first-child th{color:var(--quiet);font-size:12.5px}
th:first-child{text-align:left}.wide{width:45%;text-align:left}
.bar{position:relative;height:14px;border-radius:3px;background:var(--track)}
.bar i{display:block;height:100%;border-radius:3px}.bar .free{background:var(--accent)}.bar .bound{background:var(--bound)}
.bar s{position:absolute;top:-3px;bottom:-3px;width:2px;background:var(--ink)}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(220px,1fr));gap:10px 20px;margin:0}
dt{color:var(--quiet);font-size:12.5px}dd{margin:0;overflow-wrap:anywhere}
@media (max-width:640px){.wide{width:28%}th,td{padding-right:6px;font-size:13px}}
)";

}  // namespace sluice
