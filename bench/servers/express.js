/** Bare express 5 that parses the call and answers the bytes it was given. */
import express from 'express'
import { options, ready } from '../lib/child.js'

const app = express()
app.use(express.json())
app.post('/', (req, res) => {
  if (req.body.method === undefined) throw new Error('No method')
  res.type('application/json').send(options.answer)
})
const server = app.listen(0, '127.0.0.1', () => ready(server.address().port))
