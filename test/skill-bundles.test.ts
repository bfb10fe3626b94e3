// Skill bundles: found in folders, listed, and read when they are asked for.
import type { Content, JsonObject } from 'convoke'
import { mkdir, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { discoverSkillBundles, type SkillFolder } from '../dist/tools/skill-bundles.js'
import { startNode, temporaryFolder } from './support/lifetime.ts'

const shipped = fileURLToPath(new URL('../skills', import.meta.url))

async function put(folder: string, path: string, content: string | Uint8Array): Promise<void> {
  await mkdir(dirname(join(folder, path)), { recursive: true })
  await writeFile(join(folder, path), content)
}

function skill(name: string, more = '', text = 'Do it well.'): string {
  return `---\nname: ${name}\ndescription: How to do ${name}.\n${more}---\n\n${text}\n`
}

async function discover(folders: SkillFolder[], only?: string[]) {
  const lines: [level: string, message: string][] = []
  const log = (level: string) => (details: object | string, message?: string) =>
    void lines.push([level, message ?? (details as string)])
  const found = await discoverSkillBundles(folders, {
    log: { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error') },
    ...(only === undefined ? {} : { only }),
  })
  return { ...found, lines }
}

test('the bundles of the package are in order', async () => {
  const { bundles, warnings } = await discover([{ folder: shipped, source: 'builtin' }])
  expect(warnings).toEqual([])
  expect(bundles.map(({ name, source }) => [name, source])).toEqual([
    ['convoke-tools', 'builtin'],
    ['workspace-files', 'builtin'],
  ])
})

test('a bundle is described by its frontmatter', async () => {
  const folder = await temporaryFolder()
  await put(
    folder,
    'pdf-forms/SKILL.md',
    '\uFEFF---\r\nname: pdf-forms\r\ndescription: >\r\n  Fills in\r\n  forms.\r\nlicense: MIT\r\ncompatibility: Needs git\r\n' +
      'metadata:\r\n  version: 2\r\n  deep: { a: 1 }\r\nallowed-tools: Read Bash(git add:*), Write\r\nunknown: [1]\r\n---\r\nText',
  )
  await put(folder, 'other/SKILL.md', skill('other', 'allowed-tools: [a, b]\n'))
  await put(folder, 'no-skill/README.md', 'nothing')
  await put(folder, 'file.md', 'nothing')
  const { bundles, warnings } = await discover([{ folder, source: 'user' }])
  expect(warnings).toEqual([])
  expect(bundles).toEqual([
    {
      name: 'other',
      description: 'How to do other.',
      folder: join(folder, 'other'),
      source: 'user',
      allowedTools: ['a', 'b'],
    },
    {
      name: 'pdf-forms',
      description: 'Fills in forms.',
      folder: join(folder, 'pdf-forms'),
      source: 'user',
      license: 'MIT',
      compatibility: 'Needs git',
      metadata: { version: '2' },
      allowedTools: ['Read', 'Bash(git add:*)', 'Write'],
    },
  ])
})

test.each<[string, string, string | Uint8Array, string]>([
  ['no frontmatter', 'a', '# A\n', 'does not begin with YAML'],
  ['frontmatter without an end', 'a', '---\nname: a\n', 'does not begin with YAML'],
  ['broken YAML', 'a', '---\nname: [a\n---\n', 'its YAML is not valid'],
  ['YAML that is no mapping', 'a', '---\n- a\n---\n', 'must be a mapping'],
  [
    'YAML that blows up',
    'a',
    `---\na0: &a0 [x]\n${Array.from({ length: 20 }, (_, i) => `a${i + 1}: &a${i + 1} [${`*a${i}, `.repeat(20)}]`).join('\n')}\n---\n`,
    'blow up',
  ],
  ['no description', 'a', '---\nname: a\n---\n', 'has no description'],
  ['an empty description', 'a', '---\nname: a\ndescription: " "\n---\n', 'has no description'],
  ['a long description', 'a', `---\nname: a\ndescription: ${'x'.repeat(1025)}\n---\n`, 'has 1025 characters'],
  ['no name', 'a', '---\ndescription: x\n---\n', 'its name must be'],
  ['a name with capitals', 'A', '---\nname: A\ndescription: x\n---\n', 'its name must be'],
  ['a name that is a number', '1', '---\nname: 1\ndescription: x\n---\n', 'its name must be'],
  ['the name of another folder', 'a', skill('b'), 'must be that of its folder'],
  ['bytes', 'a', new Uint8Array([0x2d, 0xff]), 'no UTF-8 text'],
  ['too much text', 'a', skill('a', '', 'x'.repeat(300_000)), 'larger than 262144 bytes'],
])('%s makes one warning, and the others are found', async (_what, name, content, words) => {
  const folder = await temporaryFolder()
  await put(folder, `${name}/SKILL.md`, content)
  await put(folder, 'good/SKILL.md', skill('good'))
  const { bundles, warnings, lines } = await discover([{ folder, source: 'user' }])
  expect(bundles.map((bundle) => bundle.name)).toEqual(['good'])
  expect(warnings).toEqual([expect.stringContaining(`The skill "${name}" was skipped: `)])
  expect(warnings[0]).toContain(words)
  expect(lines).toEqual([['warn', warnings[0]]])
})

test('a folder that is not there, and a SKILL.md that leads out of its folder, make a warning each', async () => {
  const folder = await temporaryFolder()
  await put(folder, 'secret.md', skill('sly'))
  await mkdir(join(folder, 'skills', 'sly'), { recursive: true })
  await symlink('../../secret.md', join(folder, 'skills', 'sly', 'SKILL.md'))
  await mkdir(join(folder, 'skills', 'folder', 'SKILL.md'), { recursive: true })
  const { bundles, warnings } = await discover([
    { folder: join(folder, 'none'), source: 'user' },
    { folder: join(folder, 'skills'), source: 'user' },
  ])
  expect(bundles).toEqual([])
  expect(warnings).toEqual([
    expect.stringMatching(/^The folder of skills .* cannot be read \(ENOENT\)\.$/),
    'The skill "folder" was skipped: The path "SKILL.md" is a folder, not a file.',
    'The skill "sly" was skipped: The path "SKILL.md" leads out of the workspace.',
  ])
})

test('a bundle of the user wins over a builtin one, with a line in the log; of two of the user the first counts', async () => {
  const folder = await temporaryFolder()
  await put(folder, 'mine/convoke-tools/SKILL.md', skill('convoke-tools'))
  await put(folder, 'more/convoke-tools/SKILL.md', skill('convoke-tools', 'license: other\n'))
  const folders: SkillFolder[] = [
    { folder: shipped, source: 'builtin' },
    { folder: join(folder, 'mine'), source: 'user' },
    { folder: join(folder, 'more'), source: 'user' },
  ]
  const { bundles, lines } = await discover(folders, ['convoke-tools', 'none'])
  expect(bundles).toMatchObject([{ source: 'user', folder: join(folder, 'mine', 'convoke-tools') }])
  expect(bundles[0]).not.toHaveProperty('license')
  expect(lines).toEqual([
    ['info', 'The skill "convoke-tools" of the user is taken instead of the builtin one.'],
    ['warn', 'There is a skill "convoke-tools" already; the second one was skipped.'],
    ['warn', 'There is no skill "none", which skills.only names.'],
  ])
})

test('a folder that is a link is a bundle by the name of the link', async () => {
  const folder = await temporaryFolder()
  await put(folder, 'elsewhere/SKILL.md', skill('linked'))
  await mkdir(join(folder, 'skills'))
  await symlink('../elsewhere', join(folder, 'skills', 'linked'))
  const { bundles } = await discover([{ folder: join(folder, 'skills'), source: 'user' }])
  expect(bundles).toMatchObject([{ name: 'linked', folder: join(folder, 'elsewhere') }])
})

test('without the key there are no tools for skills; with it there are, and no peer sees them', async () => {
  expect((await startNode()).tools.list()).toEqual([])
  const node = await startNode({ skills: {} })
  expect(node.tools.list().map(({ name }) => name)).toEqual(['list_skills', 'load_skill'])
  expect(node.card()['skills'] ?? []).toEqual([])
  const { skills } = (await node.tools.call('list_skills')) as { skills: JsonObject[] }
  expect(skills.map(({ name, source }) => [name, source])).toEqual([
    ['convoke-tools', 'builtin'],
    ['workspace-files', 'builtin'],
  ])
  const { text } = (await node.tools.call('load_skill', { name: 'convoke-tools' })) as { text: string }
  expect(text).toMatch(/^# Calling tools\n/)
})

test('the text and the files of a bundle are read when they are asked for', async () => {
  const folder = await temporaryFolder()
  await put(folder, 'skills/a/SKILL.md', skill('a', 'license: MIT\n'))
  await put(folder, 'skills/a/references/api.md', 'The API.')
  await put(folder, 'skills/a/logo.png', new Uint8Array([0x89, 0]))
  await put(folder, 'skills/a/.hidden', 'x')
  await put(folder, 'secret.txt', 'a secret')
  await symlink('../../secret.txt', join(folder, 'skills/a/link.txt'))
  const node = await startNode({ baseDir: folder, skills: { dirs: ['./skills'], builtin: false } })
  expect(node.warnings).toEqual([])
  const { tools } = node
  expect(await tools.call('list_skills')).toEqual({
    skills: [{ name: 'a', description: 'How to do a.', source: 'user', license: 'MIT' }],
  })
  expect(await tools.call('load_skill', { name: 'a' })).toEqual({
    name: 'a',
    file: 'SKILL.md',
    text: 'Do it well.',
    files: ['logo.png', 'references/api.md'],
  })
  expect(await tools.call('load_skill', { name: 'a', file: 'references/api.md' })).toEqual({
    name: 'a',
    file: 'references/api.md',
    text: 'The API.',
  })
  const logo = (await tools.call('load_skill', { name: 'a', file: 'logo.png' })) as Content
  expect(logo.parts).toEqual([
    { data: { name: 'a', file: 'logo.png' } },
    { raw: 'iQA=', mediaType: 'image/png', filename: 'logo.png' },
  ])

  for (const file of [
    '../b',
    '../../secret.txt',
    join(folder, 'secret.txt'),
    'link.txt',
    'references/../../../secret.txt',
  ]) {
    const refused = await tools.tryCall('load_skill', { name: 'a', file })
    expect(refused, file).toMatchObject({ success: false, errorType: 'forbidden' })
    expect(JSON.stringify(refused)).not.toContain(folder)
  }
  expect(await tools.tryCall('load_skill', { name: 'a', file: 'none.md' })).toMatchObject({ errorType: 'not_found' })
  expect(await tools.tryCall('load_skill', { name: 'b' })).toMatchObject({ errorType: 'not_found' })
  await truncate(join(folder, 'skills/a/references/api.md'), 300_000)
  const large = await tools.tryCall('load_skill', { name: 'a', file: 'references/api.md' })
  expect(large).toMatchObject({ errorType: 'too_large' })

  await put(folder, 'skills/a/SKILL.md', skill('a', '', 'Do it better.'))
  expect(await tools.call('load_skill', { name: 'a' })).toMatchObject({ text: 'Do it better.' })
  await put(folder, 'skills/a/SKILL.md', 'broken')
  expect(await tools.tryCall('load_skill', { name: 'a' })).toMatchObject({ errorType: 'tool_failed' })
  await rm(join(folder, 'skills/a'), { recursive: true })
  expect(await tools.tryCall('load_skill', { name: 'a' })).toMatchObject({
    errorType: 'not_found',
    error: 'The skill "a" is gone.',
  })
})

test('a bad bundle is a warning of the node', async () => {
  const folder = await temporaryFolder()
  await put(folder, 'a/SKILL.md', skill('b'))
  const node = await startNode({ baseDir: folder, skills: { dirs: ['.'], only: ['convoke-tools'] } })
  expect(node.warnings).toEqual([expect.stringContaining('The skill "a" was skipped')])
  expect(await node.tools.call('list_skills')).toMatchObject({ skills: [{ name: 'convoke-tools' }] })
})
