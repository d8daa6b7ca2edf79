"""The style of report pages, and their content policy: they load nothing."""

from __future__ import annotations

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
"""Content-Security-Policy of a report, which contains all it needs."""
STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--soft:#5f6b76;--line:#dde2e7;--card:#f6f8fa;--main:#0072b2;--band:#0072b233;
--goal:#b35900;--learn:#d55e00;--evaluate:#009e73;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--bg:#14181c;--fg:#e4e8ec;--soft:#98a4af;--line:#303840;--card:#1c2228;--main:#5ab4ea;
--band:#5ab4ea33;--goal:#f0a050;--learn:#f08a4a;--evaluate:#3cc79b;--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1080px;margin:0 auto;padding:20px 16px 60px}
h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:2rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.25rem}
.sub,.note{color:var(--soft);margin:.2rem 0 0}
.note{font-size:.85rem}
.state{display:inline-block;border:1px solid var(--line);border-radius:1em;padding:0 .7em;font-size:.85rem}
.running{color:var(--evaluate)}.stopped{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:10px;margin:16px 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:8px 12px}
.tile b{display:block;font-size:1.15rem}.tile span{color:var(--soft);font-size:.85rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr));gap:18px}
.wide{grid-template-columns:1fr}.wide .plot{height:280px}
.chart{margin:0;min-width:0}
.chart figcaption{font-size:.85rem;display:flex;justify-content:space-between;gap:1em;margin-bottom:10px;overflow-wrap:anywhere}
.plot{display:grid;grid-template:minmax(0,1fr) 20px/52px minmax(0,1fr);height:180px}
.plot svg{width:100%;height:100%;min-height:0;display:block;overflow:visible;border-left:1px solid var(--line)}
.y,.x{position:relative;font-size:11px;color:var(--soft)}
.y span{position:absolute;right:6px;transform:translateY(-50%)}
.x{grid-column:2}.x span{position:absolute;top:4px;transform:translateX(-50%)}
path{vector-effect:non-scaling-stroke;fill:none}
.grid{stroke:var(--line)}.line{stroke:var(--main);stroke-width:1.8}.band{fill:var(--band)}
.goal{stroke:var(--goal);stroke-dasharray:6 4}
.split{display:flex;height:22px;border-radius:6px;overflow:hidden}
.collect{background:var(--main)}.learn{background:var(--learn)}.evaluate{background:var(--evaluate)}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;margin:.5rem 0 0;font-size:.9rem}
.key i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.4em}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.88rem}
th,td{text-align:left;padding:3px 14px 3px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:break-word}
th{color:var(--soft);font-weight:600}td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
code,pre{font:.85rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 12px;overflow-x:auto;margin:.4rem 0}
details{margin:.6rem 0}summary{cursor:pointer;color:var(--soft)}
video,img{max-width:100%;border-radius:8px;border:1px solid var(--line)}
.x span:last-child{white-space:nowrap}
@media (max-width:640px){.charts:not(.wide){grid-template-columns:1fr 1fr;gap:14px}.wide .plot{height:200px}
.charts:not(.wide) .plot{height:120px;grid-template-columns:40px minmax(0,1fr)}.x span:nth-child(even){display:none}
.charts:not(.wide) figcaption{font-size:.75rem}}
.films{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,260px),1fr));gap:14px}
.films figure{margin:0;font-size:.85rem;color:var(--soft);overflow-wrap:anywhere}
"""
