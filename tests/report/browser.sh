#!/bin/sh
# browser.sh PAGE.html - a page of ./lab report in headless Chromium, 1280 and 390 pixels wide, light and dark: it loads without an
# error and asks for nothing, each column sorts both ways, #L27 shows that line, the choice of a kernel changes the numbers, the
# page does not scroll sideways, and text stands out from its background.
#
# The browser is $CHROME, or else what is found. Exit 0, 1, or 77 where there is none.
set -u
page=$1
browser=${CHROME:-}
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    [ -n "$browser" ] || browser=$(command -v $name)
done
[ -n "$browser" ] || { echo "no Chromium here: the page is not looked at in a browser"; exit 77; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# The page with two scripts more: the first catches errors, the second says at the end what it has found.
cat >"$dir/checks.js" <<'SCRIPT'
addEventListener('load', () => {
  const said = [];
  const check = (good, what) => { if (!good) said.push(what); };
  try {
    check(errors.length === 0, 'errors: ' + errors.join('; '));
    check(innerWidth === WIDTH, 'the window is ' + innerWidth + ' pixels wide, not ' + WIDTH);
    check(document.documentElement.scrollWidth <= innerWidth, 'the page is ' + document.documentElement.scrollWidth + ' pixels wide, the window ' + innerWidth);
    check(performance.getEntriesByType('resource').every(it => it.name.startsWith('data:')), 'the page asked for something');
    check([...document.images].length > 0 && [...document.images].every(it => it.naturalWidth > 0), 'an image did not load');
    const tables = [...document.querySelectorAll('table.sortable')];
    check(tables.length >= 4, 'there are only ' + tables.length + ' tables');
    for (const table of tables) {
      const heads = [...table.tHead.rows[0].cells];
      const before = [...table.tBodies[0].rows];
      heads.forEach((head, at) => {
        const key = row => head.classList.contains('n') ? Number(row.cells[at].dataset.v ?? -Infinity) : row.cells[at].textContent;
        const where = table.id + ', column ' + head.textContent;
        for (let click = 1; click <= 2; ++click) {
          head.querySelector('button').click();
          const way = head.getAttribute('aria-sort');
          const keys = [...table.tBodies[0].rows].map(key);
          check(way === 'ascending' || way === 'descending', where + ' does not say how it is sorted');
          check(keys.every((k, i) => i === 0 || (way === 'ascending' ? keys[i - 1] <= k : keys[i - 1] >= k)), where + ' is not sorted ' + way);
          check(keys.length === before.length, where + ' lost rows');
          if (click === 2) check(way !== head.first, where + ' sorts one way only');
          head.first = way;
          check(heads.filter(it => it.getAttribute('aria-sort') !== 'none').length === 1, where + ': two columns say that they are sorted');
        }
      });
    }
    const source = document.getElementById('table-source');
    source.tHead.rows[0].cells[2].querySelector('button').click();
    const most = source.tBodies[0].rows[0];
    check(Number(most.cells[2].dataset.v) > 0, 'the line with most sectors is not the first');
    source.tHead.rows[0].cells[0].querySelector('button').click();
    check([...source.tBodies[0].rows].every((row, i) => row.id === 'L' + (i + 1)), 'lines do not go back into their order');
    document.querySelector('#L27 .line a').click();
    const line = document.getElementById('L27');
    const box = line.getBoundingClientRect();
    check(location.hash === '#L27' && line.matches(':target'), 'the number of line 27 is no link to it');
    check(box.top >= 0 && box.bottom <= innerHeight, 'line 27 is not in sight but at ' + box.top);
    check(getComputedStyle(line.cells[7]).backgroundColor !== getComputedStyle(document.getElementById('L26').cells[7]).backgroundColor, 'line 27 is not marked');
    const choice = document.getElementById('kernel');
    const total = () => [...source.querySelectorAll('td.heat')].reduce((sum, cell) => sum + Number(cell.dataset.v ?? 0), 0);
    const all = total();
    let together = 0;
    const races = [];
    for (const option of [...choice.options].slice(1)) {
      choice.value = option.value;
      choice.dispatchEvent(new Event('change'));
      together += total();
      races.push(option.textContent + ' ' + (line.cells[6].textContent || 0));
    }
    choice.value = '';
    choice.dispatchEvent(new Event('change'));
    check(all > 0 && together === all && total() === all, 'kernels have ' + together + ' together, all have ' + all + ' and then ' + total());
    check(races.join() === 'ordered 0,race 1', 'races of line 27 by kernel: ' + races);
    const light = colour => {
      const [r, g, b] = colour.match(/[\d.]+/g).map(n => n / 255).map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
      return .2126 * r + .7152 * g + .0722 * b;
    };
    const back = light(getComputedStyle(document.body).backgroundColor);
    check(DARK ? back < .1 : back > .8, 'the background is not ' + (DARK ? 'dark' : 'light'));
    for (const what of ['body', 'a', '.note', 'td.bad', 'td.code']) {
      const text = light(getComputedStyle(document.querySelector(what)).color);
      const contrast = (Math.max(text, back) + .05) / (Math.min(text, back) + .05);
      check(contrast >= 4.5, what + ' has a contrast of ' + contrast.toFixed(1) + ', less than 4.5');
    }
  } catch (error) {
    said.push('the checks stopped: ' + error.stack);
  }
  parent.postMessage('CHECKED ' + (said.length ? said.join(' | ') : 'and good'), '*');
});
SCRIPT

look() { # WIDTH DARK
    awk -v checks="$dir/checks.js" -v width="$1" -v dark="$2" '
        /<head>/ { print; print "<script>const errors = []; const WIDTH = " width ", DARK = " dark ";"
                   print "addEventListener(\"error\", event => errors.push(event.message));"
                   while ((getline line <checks) > 0) print line
                   print "</script>"; next }
        { print }' "$page" >"$dir/inner.html"
    # In a frame: a window of Chromium has at least 500 pixels.
    {
        printf '<!DOCTYPE html><title></title><script>addEventListener("message", event => { document.title = event.data; })</script>'
        printf '<iframe style="border:0;width:%dpx;height:844px" src="inner.html"></iframe>' "$1"
    } >"$dir/page.html"
    scheme=1
    [ "$2" = false ] || scheme=0
    sandbox=''
    [ "$(id -u)" -ne 0 ] || sandbox=--no-sandbox
    # shellcheck disable=SC2086  # nothing or one word
    timeout 100 "$browser" --headless $sandbox --disable-gpu --no-first-run --user-data-dir="$dir/profile" --blink-settings=preferredColorScheme=$scheme \
        --window-size=1400,900 --virtual-time-budget=10000 --dump-dom "file://$dir/page.html" >"$dir/dom" 2>"$dir/err"
    found=$(sed -n 's/.*<title>\(CHECKED.*\)<\/title>.*/\1/p' "$dir/dom" | head -n 1)
    [ "$found" = 'CHECKED and good' ] && { echo "$1 pixels, dark $2: good"; return; }
    echo "$1 pixels, dark $2: ${found:-the browser said nothing: $(tail -n 3 "$dir/err")}"
    failures=$((failures + 1))
}
failures=0
for width in 1280 390; do for dark in false true; do look $width $dark; done; done
[ $failures -eq 0 ]
