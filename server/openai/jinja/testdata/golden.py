"""Writes golden.jsonl: what Python's Jinja makes of templates, set up as for chats.

python golden.py > golden.jsonl      needs jinja2
"""

import json
from datetime import datetime

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda form: datetime(2026, 2, 3, 14, 5, 6).strftime(form)

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "What's the <weather> \u00e9?",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["A", 'B"']}, "n": {"default": 1.5}}},
    },
}
VARIABLES = {
    "messages": [
        {"role": "system", "content": "  You help. \n"},
        {"role": "user", "content": "Hi <there> \u00fc\n\n"},
        {"role": "assistant", "content": "<think>hm</think>\nHello"},
        {"role": "user", "content": [{"type": "text", "text": "part 1"}, {"type": "text", "text": "part 2"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "A", "n": 2}}}],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
    ],
    "tools": [TOOL],
    "none_tools": None,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "add_generation_prompt": True,
    "x": 7,
    "f": 2.5,
    "s": "a,b,,c",
    "d": {"b": 1, "a": [1, "two", None, True], "items": 3},
    "l": [3, 1, 2],
    "rows": [{"n": 2, "k": "B"}, {"n": 1, "k": "a"}, {"k": "c"}],
}

EXPRESSIONS = r"""
x + 1 ;; x - 10 ;; x * f ;; x / 2 ;; x // 2 ;; -x // 2 ;; x % 4 ;; -x % 4 ;; x ** 2 ;; 2 ** -1 ;; -x ;; +x ;; f // 1 ;; f % 2 ;; 7.0 ;; 1e3
1_000 ;; 0.00001 ;; 1e20 ;; 1/3 ;; x > 3 and x < 10 ;; 1 < x <= 7 ;; not x ;; x == 7.0 ;; x != 7 ;; "a" < "b" ;; x in l ;; 3 in l ;; 3 not in l
"b" in s ;; "a" in d ;; none == none ;; true == 1 ;; "a" ~ x ~ f ~ true ~ none ;; "a" "b" ;; "%s is %d, %r" % ("a", 3, "b") ;; "ab" * 3
3 * "ab" ;; [1] + [2] ;; (1, 2)|tojson ;; ()|length ;; (1,)|tojson ;; [1, 2,] ;; l[0] ;; l[-1] ;; l[9] ;; l[1:] ;; l[:-1] ;; l[::-1] ;; l[::2] ;; s[1:3] ;; s[-1]
s[::-1] ;; l[5:] ;; l[-2:1] ;; s[0] ;; d.a ;; d["a"] ;; d.items()|list|tojson ;; d.items is callable ;; d["items"] ;; d.keys()|list ;; d.values()|list ;; d.get("b") ;; d.get("z")
d.get("z", 5) ;; d.missing ;; d["missing"] ;; missing ;; missing.other ;; missing + 1 ;; missing ~ "a" ;; missing|length ;; missing is defined
x is defined ;; missing or 5 ;; missing == missing ;; x.y ;; none.y ;; 1 if x else 2 ;; 1 if not x else 2 ;; (1 if not x)
1 if missing else 2 if x else 3 ;; "a" if x == 7 and f else "b" ;; s.split(",") ;; s.split(",", 1) ;; s.rsplit(",", 1) ;; " a b ".split()
s.startswith("a") ;; s.startswith(("x", "a")) ;; s.endswith("c") ;; s.replace(",", ";") ;; s.replace(",", ";", 1) ;; "  a ".strip()
"xaxx".strip("x") ;; "xaxx".lstrip("x") ;; "xaxx".rstrip("x") ;; " a ".lstrip() ;; " a ".rstrip() ;; s.upper() ;; "aB c".title()
"aB".capitalize() ;; s.find("b") ;; s.find("z") ;; s.count(",") ;; ",".join(["a", "b"]) ;; "{} and {}".format(1, "a")
"{1}{0}{n}{{}}".format(1, 2, n=3) ;; "a\nb\r\nc".splitlines() ;; "a.b".partition(".")|list ;; "12".isdigit() ;; "".isdigit() ;; "ab".isalpha()
"AB".isupper() ;; "\u00e9\x41\n\t\\\'" ;; 'it\'s' ;; "quote \" here" ;; ["it's", 'say "x"', "both ' \"", "\n"] ;; {"a": {"b": [1, 2.0]}} ;; {}
d ;; s|upper ;; s|length ;; l|length ;; d|length ;; d|list ;; s|list ;; l|sort ;; l|sort(reverse=true) ;; l|first ;; l|last ;; []|first ;; l|max
l|min ;; l|sum ;; l|join(", ") ;; l|join ;; l|reverse|list ;; s|reverse ;; rows|map(attribute="k")|list
rows|map(attribute="n", default=0)|list ;; rows|selectattr("n")|list ;; rows|selectattr("k", "equalto", "a")|list
rows|rejectattr("n", "defined")|list ;; l|select("odd")|list ;; l|reject("gt", 1)|list ;; ["a", "b"]|map("upper")|list
rows|sort(attribute="k")|map(attribute="k")|join ;; rows|map(attribute="k")|join("-") ;; l|map("string")|list ;; [1, 1, 2]|unique|list
d|dictsort|tojson ;; d|items|list|tojson ;; rows|join(",", attribute="k") ;; " a "|trim ;; "xax"|trim("x") ;; "aB"|lower ;; "aB cd"|title ;; "ab"|capitalize
missing|default("z") ;; ""|default("z") ;; ""|default("z", true) ;; none|d("z") ;; x|d("z") ;; "3"|int ;; "3.7"|int ;; "z"|int ;; "z"|int(4)
3.9|int ;; "3.5"|float ;; -3|abs ;; 2.567|round(1) ;; 2.5|round ;; "a<b>&'\""|e ;; "a\nb\n\nc"|indent ;; "a\nb"|indent(2, true)
"one two"|wordcount ;; "a"|replace("a", "b") ;; "x"|string ;; "a"|safe ;; "%s-%s"|format(1, "b") ;; d|tojson ;; tools|tojson
tools[0]|tojson(indent=4) ;; "\u00e9\"\n</s>"|tojson ;; "\u00e9"|tojson(ensure_ascii=true) ;; 1.0|tojson ;; []|tojson(indent=2) ;; {}|tojson
{"a": []}|tojson(indent=2) ;; d|tojson(separators=(",", ":")) ;; d|tojson(sort_keys=true) ;; none|tojson ;; d|tojson(indent=none) ;; x is number
f is float ;; x is integer ;; true is integer ;; true is boolean ;; s is string ;; l is iterable ;; d is mapping ;; l is mapping
l is sequence ;; s is sequence ;; none is none ;; x is not none ;; x is odd ;; x is even ;; x is divisibleby 7 ;; x is eq 7 ;; x is in l
x is gt(3) ;; missing is undefined ;; true is true ;; x is true ;; "ab" is lower ;; "AB" is upper ;; x is sameas 7 ;; x is string and f
x is string or f is number ;; range(3)|list ;; range(1, 4)|list ;; range(5, 0, -2)|list ;; namespace(a=1).a ;; dict(a=1, b=2)
strftime_now("%Y-%m-%d %d %b %Y %H:%M:%S %B %j %%") ;; raise_exception("no \u00fc") ;; x.foo.bar ;; x() ;; missing() ;; "a" + 1 ;; 1 + "a"
[] < 1 ;; l["a"] ;; 1 / 0 ;; "a".foo ;; d.get|int ;; "a" is foo
"""

BLOCKS = [
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}\n{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% else %}none{% endfor %}",
    "{% for x in [] %}{% else %}none{% endfor %}|{% for x in missing %}a{% else %}b{% endfor %}",
    "{% for a, b in d.items() %}{{ a }}={{ b }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'abc' %}{{ c }}-{% endfor %}",
    "{% for i in l %}{{ loop.index0 }}{{ loop.first }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }} {% endfor %}",
    "{% set y = 1 %}{% for i in l %}{% set y = i %}{{ y }}{% endfor %}{{ y }}",
    "{% set ns = namespace(y=1, z='a') %}{% for i in l %}{% set ns.y = ns.y + i %}{% endfor %}{{ ns.y }}{{ ns.z }}",
    "{% if false %}a{% elif x == 7 %}b{% else %}c{% endif %}{% if x %}{% set q = 3 %}{% endif %}{{ q }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t %}in {{ x }}{% endset %}{{ t }}{% set u | upper | trim %} abc {% endset %}[{{ u }}]",
    "{% macro m(a, b='z', c=none) %}({{ a }}{{ b }}{{ c }}{{ x }}){% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}{{ m() }}",
    "{% macro walk(v, depth=0) %}{% if v is mapping %}{% for k, w in v.items() %}{{ '  ' * depth }}{{ k }}:\n{{ walk(w, depth + 1) }}{% endfor %}"
    "{% else %}{{ '  ' * depth }}{{ v }}\n{% endif %}{% endmacro %}{{ walk(tools[0]) }}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}|{% endfor %}",
    "  {% if x %}\n  a\n  {%- endif %}\n b  {{- x -}}  \n c {#- comment -#} \n d {# c #}\n{%+ if x %}e{% endif +%}\n  f",
    "a\n  {# one #}\n\n  {% set q = 1 %}\n\n   {{ q }}\n",
    "a {% if x %} b {% endif %} c\n    {% if x %}x{% endif %}  \n  {%- if x -%}  \n y \n {%- endif -%} z\n\n",
    "{% raw %}{{ x }}{% if %}{% endraw %}{{ x }}{%- raw -%}  a  {%- endraw -%}  b",
    "{% filter upper %}a{{ s }}{% endfilter %}{% with y = x + 1, z = 2 %}{{ y }}{{ z }}{% endwith %}{{ z }}",
    "{% generation %}a{{ x }}{% endgeneration %}b",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': {}} }}{{ '}}' }}{{ '{%' }}{# {{ #}",
    "{%- set system = messages[0].content|trim if messages[0].role == 'system' else '' %}{%- set rest = messages[1:] %}"
    "{{- bos_token }}{%- for m in rest %}{%- if m.content is string %}[{{ m.role }}]{{ m.content.split('</think>')[-1].lstrip('\\n') }}"
    "{%- elif m.content is iterable and m.content is not none %}{%- for p in m.content %}{{ p['text'] }}{%- endfor %}{%- endif %}"
    "{%- if m.tool_calls %}{%- for c in m.tool_calls %}{%- set c = c.function %}<call>{\"name\": \"{{ c.name }}\", \"arguments\": {{ c.arguments | tojson }}}</call>"
    "{%- endfor %}{%- endif %}{%- if m.role == 'tool' and (loop.last or rest[loop.index0 + 1].role != 'tool') %}</tool>{%- endif %}{%- endfor %}{{ system }}",
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate ' + m.role) }}{% endif %}{% endfor %}",
    "{% if tools is not none and tools|length > 0 and not none_tools %}{{ tools | map(attribute='function') | list | tojson(indent=2) }}{% endif %}",
    "{% for m in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}{{ index }}{{ m.role }}{% if m.role == 'user' and m.content is string and not(m.content.startswith('Z')) %}!{% endif %}{% endfor %}",
    "{{- '<' + messages[1]['content'] | trim + '>' }}{{ -x|abs }}{{ 'a' ~ 'b' | upper }}{{ (x, f)|join('/') }}",
    "{% set messages = messages[1:] %}{{ messages|length }}{% set x = x + 1 %}{{ x }}",
    "a\r\nb\r{{ x }}\n",
    "{% if x %}unclosed",
    "{{ x",
    "{% foo %}",
    "{% endfor %}",
    "{{ x | nofilter }}",
    "{% for i in range(1000000) %}{% endfor %}",
    "{{ messages.append(1) }}",
]


def row(template):
    try:
        compiled = env.from_string(template)
        try:
            return {"template": template, "want": compiled.render(**VARIABLES)}
        except Exception as e:
            raised = type(e) is jinja2.exceptions.TemplateError
            return {"template": template, "raised": str(e)} if raised else {"template": template, "fails": str(e)}
    except jinja2.exceptions.TemplateSyntaxError as e:
        return {"template": template, "invalid": str(e)}


print(json.dumps({"variables": VARIABLES}))
for expression in EXPRESSIONS.strip().replace("\n", " ;; ").split(" ;; "):
    print(json.dumps(row("{{ " + expression + " }}")))
for template in BLOCKS:
    print(json.dumps(row(template)))
