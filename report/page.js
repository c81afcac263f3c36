'use strict';
// A heading sorts its table by that column: numbers from the largest, words and line numbers from the smallest, and the
// other way round the next time. Rows that are equal keep their order.
for (const table of document.querySelectorAll('table.sortable')) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, at) => head.firstElementChild.addEventListener('click', () => {
    const numbers = head.classList.contains('n');
    const falls = head.getAttribute('aria-sort');
    const down = falls === 'none' ? numbers && head.textContent !== 'line' : falls === 'ascending';
    const key = row => {
      const cell = row.cells[at];
      return numbers ? Number(cell.dataset.v ?? -Infinity) : cell.textContent;
    };
    const compare = (a, b) => a < b ? -1 : a > b ? 1 : 0;
    const rows = [...body.rows].map(row => [key(row), row]);
    rows.sort((a, b) => down ? compare(b[0], a[0]) : compare(a[0], b[0]));
    body.append(...rows.map(row => row[1]));
    for (const other of heads) other.setAttribute('aria-sort', other === head ? (down ? 'descending' : 'ascending') : 'none');
  }));
}

// The numbers of the chosen kernel, or of all together, in the annotated source.
{
  const numbers = JSON.parse(document.getElementById('numbers').textContent);
  const choice = document.getElementById('kernel');
  const show = () => {
    const sums = {};
    const most = [];
    for (const [line, kernels] of Object.entries(numbers)) {
      const sum = sums[line] = [];
      for (const [kernel, ...counts] of kernels) {
        if (choice.value === '' || Number(choice.value) === kernel) counts.forEach((n, c) => { sum[c] = (sum[c] ?? 0) + n; });
      }
      sum.forEach((n, c) => { most[c] = Math.max(most[c] ?? 0, n); });
    }
    for (const line of Object.keys(numbers)) {
      const row = document.getElementById('L' + line);
      [...row.querySelectorAll('.heat')].forEach((cell, c) => {
        const n = sums[line][c] ?? 0;
        cell.textContent = n ? String(n) : '';
        if (n) {
          cell.dataset.v = n;
          cell.style.setProperty('--h', (n / most[c]).toFixed(3));
        } else {
          delete cell.dataset.v;
          cell.style.removeProperty('--h');
        }
      });
    }
  };
  choice.addEventListener('change', show);
  if (choice.value !== '') show();
}
